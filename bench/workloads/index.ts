import type { Workload } from "../suite/workload.ts";
import { binary } from "./binary.ts";
import { small } from "./small.ts";

/** All that `npm run bench` measures, in the order in which it is run and reported. A workload is a file in this folder and a line here. */
export const workloads: readonly Workload[] = [small, binary];
