import type { Workload } from "../suite/workload.ts";
import { contendersOf, measureCalls } from "./calls.ts";

export const binary: Workload = {
  name: "binary",
  title: "Binary calls",
  about:
    "Bytes go there and back inside a call: 1 KiB and 64 KiB, with one and with 64 callers. Over Cinnabar, grpc-js and node:net.",
  families: ["binary"],
  selection: "whole",
  seconds: 55,
  run: (run) =>
    measureCalls(
      run,
      (["1KiB", "64KiB"] as const).flatMap((payload) =>
        [1, 64].map((inFlight) => ({
          payload,
          work: `binary.${payload}`,
          title: payload.replace("KiB", " KiB"),
          inFlight,
        })),
      ),
      // The others of the workload `small` carry bytes as they carry objects.
      contendersOf({ ...run, quick: true }),
    ),
};
