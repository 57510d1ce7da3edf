import { tmpdir } from "node:os";
import { join } from "node:path";
import * as grpc from "@grpc/grpc-js";
import { cpuUs } from "../../echo/usage.ts";
import { definition, messageBytes, options } from "../grpc-bytes.ts";
import type { BulkParty } from "../party.ts";
import { holds, Slots } from "../slots.ts";

/** Puts each transfer together in memory chosen beforehand; one that is a single message is there already. */
export async function open(transport: string): Promise<BulkParty> {
  let slots = new Slots(0);
  let lanes = 1;
  let streams = 0;
  const server = new grpc.Server(options);
  server.addService(definition, {
    move(stream: grpc.ServerDuplexStream<Buffer, Buffer>) {
      const lane = streams++ % lanes;
      let filled = 0;
      let isFirst = true;
      stream.on("data", (message: Buffer) => {
        if (slots.bytes > messageBytes) slots.slot(lane).set(message, filled);
        filled += message.byteLength;
        if (filled < slots.bytes) return;
        filled = 0;
        const whole = slots.bytes > messageBytes ? slots.slot(lane) : message;
        const isRight = !isFirst || holds(whole, 1, lane % slots.count);
        isFirst = false;
        stream.write(Buffer.of(isRight ? 1 : 0));
      });
      stream.on("error", () => {}); // the client may be the first to end
      stream.on("end", () => stream.end());
    },
  });
  const bind =
    transport === "unix"
      ? `unix:${join(tmpdir(), `cinnabar-bench-bytes-${process.pid}.sock`)}`
      : "127.0.0.1:0";
  const port = await new Promise<number>((resolve, reject) => {
    server.bindAsync(bind, grpc.ServerCredentials.createInsecure(), (error, bound) => {
      if (error === null) resolve(bound);
      else reject(error);
    });
  });
  return {
    address: async () => bind.replace(/:0$/, `:${port}`),
    async prepare(bytes, prepared) {
      lanes = prepared;
      slots = new Slots(bytes, lanes);
      streams = 0;
    },
    cpuUs: async () => cpuUs(),
    async close() {
      server.forceShutdown();
    },
  };
}
