import type { Workload } from "../suite/workload.ts";
import { along } from "./along.ts";
import { binary } from "./binary.ts";
import { block } from "./block.ts";
import { bulk } from "./bulk.ts";
import { bulkBeside } from "./bulk-beside.ts";
import { bulkFloor } from "./bulk-floor.ts";
import { bulkMemory } from "./bulk-memory.ts";
import { bulkPeers } from "./bulk-peers.ts";
import { bulkRegistration } from "./bulk-registration.ts";
import { bulkScatter } from "./bulk-scatter.ts";
import { bulkSmall } from "./bulk-small.ts";
import { byteStreams } from "./byte-streams.ts";
import { cold } from "./cold.ts";
import { collectives } from "./collectives.ts";
import { company, crowd } from "./company.ts";
import { fiRmaBw } from "./fi-rma-bw.ts";
import { floor } from "./floor.ts";
import { groupSize } from "./group-size.ts";
import { http } from "./http.ts";
import { lanes } from "./lanes.ts";
import { layers } from "./layers.ts";
import { linuxDisk } from "./linux-disk.ts";
import { mapfile } from "./mapfile.ts";
import { memory } from "./memory.ts";
import { nest } from "./nest.ts";
import { oneWay } from "./one-way.ts";
import { overload } from "./overload.ts";
import { rest } from "./rest.ts";
import { reverse } from "./reverse.ts";
import { scaling } from "./scaling.ts";
import { security } from "./security.ts";
import { small } from "./small.ts";
import { stall } from "./stall.ts";
import { start } from "./start.ts";
import { streamBeside } from "./stream-beside.ts";
import { streams } from "./streams.ts";
import { telemetry } from "./telemetry.ts";
import { webBeside } from "./web-beside.ts";
import { wheel } from "./wheel.ts";

/**
 * All that `npm run bench` measures, in the order in which it is run and reported. A workload is a file in this folder
 * and a line here.
 */
export const workloads: readonly Workload[] = [
  small,
  streams,
  oneWay,
  reverse,
  streamBeside,
  binary,
  block,
  linuxDisk,
  bulk,
  bulkBeside,
  bulkFloor,
  bulkMemory,
  bulkPeers,
  bulkRegistration,
  bulkScatter,
  bulkSmall,
  mapfile,
  byteStreams,
  fiRmaBw,
  floor,
  layers,
  collectives,
  groupSize,
  rest,
  start,
  memory,
  scaling,
  company,
  crowd,
  cold,
  webBeside,
  http,
  stall,
  overload,
  lanes,
  along,
  security,
  wheel,
  telemetry,
  nest,
];
