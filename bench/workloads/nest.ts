import { contenders } from "../contenders/index.ts";
import type { Workload } from "../suite/workload.ts";
import { measureCalls } from "./calls.ts";

export const nest: Workload = {
  name: "nest",
  title: "NestJS",
  about:
    "An object of a number, a name and a text of 64 bytes goes to a controller of NestJS and back: over Nest's TCP and gRPC, over Cinnabar with the client proxy of cinnabar-nest, and with a client of Cinnabar. " +
    "Only the two over Cinnabar validate, with zod at both ends, and have deadlines.",
  families: ["nest_small"],
  selection: "whole",
  seconds: 25,
  run: (run) =>
    measureCalls(
      run,
      [1, 64].map(
        (inFlight) =>
          ({ payload: "small", work: "nest_small", title: "Small object, NestJS", inFlight }) as const,
      ),
      contenders().filter(({ isOfNest }) => isOfNest),
    ),
};
