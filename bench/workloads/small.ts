import type { Workload } from "../suite/workload.ts";
import { measureCalls } from "./calls.ts";

export const small: Workload = {
  name: "small",
  title: "Small calls",
  about:
    "An object of a number, a name and a text of 64 bytes goes there and back. So many callers in one client process each wait for their answer before they ask again. " +
    "Cinnabar validates with zod at both ends and arms a deadline for each call.",
  families: ["small"],
  selection: "quick",
  seconds: 85,
  run: (run) =>
    measureCalls(
      run,
      (run.quick ? [1, 64] : [1, 8, 64]).map((inFlight) => ({
        payload: "small",
        work: "small",
        title: "Small object",
        inFlight,
      })),
    ),
};
