import { expect, it } from "vitest";
import { opening, settled } from "../session/calls/scripted-session.test-support.ts";
import type { SessionObserver } from "../session/connection/context.ts";
import { packedGreeting } from "../session/connection/fake-services.test-support.ts";
import { builtin, firstBuiltin } from "../wire/builtin.ts";
import { frameKind } from "../wire/frame.ts";
import { type LaneAddress, packLanes } from "../wire/handshake.ts";
import { lanesMethod } from "./lane-board.ts";

const before: LaneAddress[] = [{ url: "mem://lane", incarnation: 1n }];
const after: LaneAddress[] = [{ url: "mem://lane", incarnation: 2n }];

it("lanes that change in the message of the welcome are those that the session begins with", async () => {
  const all = opening();
  all.host.builtins[builtin.lanes - firstBuiltin] = lanesMethod;
  const request = (generation: number) => ({
    kind: frameKind.request,
    callId: (generation << 20) | all.host.limits.maxRequests,
    method: builtin.lanes,
    word: 1000,
    body: packLanes(after),
  });
  all.receive({ kind: frameKind.welcome, body: packedGreeting({ lanes: before }) }, request(1));
  expect(await all.opened).toBeUndefined();
  expect(all.session.remote?.lanes).toEqual(after);

  const told: (readonly LaneAddress[])[] = [];
  all.session.observer = { onLanes: (lanes) => void told.push(lanes) } as SessionObserver;
  all.receive(request(2));
  await settled();
  expect(told).toEqual([after]);
});
