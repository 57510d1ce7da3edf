import { once } from "node:events";
import * as grpc from "@grpc/grpc-js";
import { cpuUs } from "../../echo/usage.ts";
import { definition, messageBytes, options } from "../grpc-bytes.ts";
import { runLanes } from "../lanes.ts";
import type { Driver } from "../party.ts";
import { Slots } from "../slots.ts";

type Stream = grpc.ClientDuplexStream<Buffer, Buffer>;

const BytesClient = grpc.makeGenericClientConstructor(definition, "Bytes");

/** Streams slots to the server, which answers each; a stream for each lane, all on one connection. */
export async function open(_: string, address: string): Promise<Driver> {
  const client = new BytesClient(address, grpc.credentials.createInsecure(), options);
  const move = (client as unknown as { move: () => Stream }).move.bind(client);
  let streams: Stream[] = [];
  let slots = new Slots(0);

  const send = async (lane: number) => {
    const stream = streams[lane];
    if (stream === undefined) throw new Error(`there is no stream ${lane}`);
    const answered = once(stream, "data");
    const slot = slots.slot(lane);
    for (let at = 0; at < slot.byteLength; at += messageBytes) {
      const message = slot.subarray(at, at + messageBytes);
      const whole = Buffer.from(message.buffer, message.byteOffset, message.byteLength);
      if (!stream.write(whole)) await once(stream, "drain");
    }
    const [answer] = (await answered) as [Buffer];
    if (answer[0] !== 1) throw new Error("the server got something else than what was sent");
  };
  const end = () => {
    for (const stream of streams) stream.cancel();
    streams = [];
  };

  return {
    async prepare(bytes, lanes) {
      end();
      slots = new Slots(bytes, lanes);
      slots.fill(1);
      // One after the other, so that the server counts them in this order.
      for (let lane = 0; lane < lanes; lane++) {
        const stream = move();
        stream.on("error", () => {}); // cancelled at the end of its size
        streams.push(stream);
        await send(lane);
      }
    },
    measure: (_, inFlight, durationMs) => runLanes(inFlight, { durationMs }, send),
    address: async () => "",
    cpuUs: async () => cpuUs(),
    async close() {
      end();
      client.close();
    },
  };
}
