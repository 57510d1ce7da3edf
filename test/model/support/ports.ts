import { parseUrl } from "../../../src/fabric/libfabric/url.ts";
import type { Port } from "../../../src/fabric/port.ts";
import type { Target } from "../../../src/fabric/target.ts";
import type { ModelFabric } from "./fabric.ts";

/**
 * Stands in for `src/fabric/open-port.ts`: every port that engines open belongs to the fabric of the schedule that
 * runs.
 */
let fabric: ModelFabric | undefined;

export function useFabric(current: ModelFabric): void {
  fabric = current;
}

export async function openListeningPort(url: string): Promise<Port> {
  return (fabric as ModelFabric).open(parseUrl(url).name);
}

export async function openConnectingPort(): Promise<Port> {
  return (fabric as ModelFabric).open("");
}

export function canReach(_port: Port, _target: Target): boolean {
  return true;
}
