import { type CallContext, Engine, implement, type PooledMemory } from "cinnabar";
import { cpuUs } from "../../echo/usage.ts";
import { parseTransport, securityFor } from "../../security/options.ts";
import { Bulk, heartbeatMs } from "../contract.ts";
import { runLanes } from "../lanes.ts";
import type { BulkParty } from "../party.ts";
import { Slots, slotCount } from "../slots.ts";

type Lent = Parameters<CallContext["get"]>[0] & Parameters<CallContext["put"]>[1];

/** Serves `Bulk` at a URL. Its gets and puts run between its own slots and the caller's. */
export async function open(transport: string): Promise<BulkParty> {
  const { url, isSealed } = parseTransport(transport);
  let slots = new Slots(0);
  let pooled: PooledMemory | undefined;

  const take = (bytes: number, lanes: number) => {
    pooled?.dispose();
    slots = new Slots(bytes, lanes, (total) => {
      pooled = engine.pool.take(total);
      return pooled.bytes;
    });
  };

  const move = (call: CallContext, op: "get" | "put", lane: number, region: Lent) => {
    const offset = region.byteLength === slots.bytes ? 0 : slots.offset(lane);
    return op === "get"
      ? call.get(region, slots.slot(lane), { offset })
      : call.put(slots.slot(lane), region, { offset });
  };

  const engine = await Engine.open({
    ...securityFor(isSealed),
    heartbeatMs,
    listen: url,
    serve: [
      implement(Bulk, {
        prepare({ bytes, lanes, fill, verify, verifyFirst }) {
          if (slots.bytes !== bytes || slots.count !== slotCount(bytes, lanes)) take(bytes, lanes);
          if (verify !== undefined) slots.verify(verify, `cinnabar ${url} get`);
          if (verifyFirst !== undefined) slots.verify(verifyFirst, `cinnabar ${url} get`, 1);
          if (fill !== undefined) slots.fill(fill);
          return {};
        },
        run: ({ op, inFlight, stretch, region }, call) =>
          runLanes(inFlight, stretch, (lane) => move(call, op, lane, region)),
        async move({ op, lane, region }, call) {
          await move(call, op, lane, region);
          return {};
        },
        carry: () => ({}),
        nothing: () => ({}),
        hold: () => ({}),
      }),
    ],
  });
  return {
    address: async () => engine.urls[0] ?? "",
    prepare: async () => {},
    cpuUs: async () => cpuUs(),
    close: () => engine.close(),
  };
}
