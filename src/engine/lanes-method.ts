import { builtinMethod } from "../memory/builtin-method.ts";
import { type LaneAddress, parseLanes } from "../wire/handshake.ts";

/** Serves `lanes`: whoever speaks for lanes says where they are now. */
export const lanesMethod = builtinMethod<LaneAddress[]>(
  "lanes",
  (parts) => {
    const lanes = parseLanes(parts);
    return typeof lanes === "string" ? undefined : lanes;
  },
  (lanes, call, session) => {
    if (session.observer !== undefined) session.observer.onLanes(lanes);
    // The welcome came just before, and whoever connected has not looked at it yet. Told by an engine that has connected to this one: nobody sends it calls, nor looks.
    else if (session.remote !== undefined) session.remote = { ...session.remote, lanes };
    call.settle({ value: undefined });
  },
);
