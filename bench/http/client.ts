import { connect, type Socket } from "node:net";
import { smallObject } from "../contenders/payloads.ts";
import type { Party } from "../suite/child.ts";

/** A process that sends requests, by sockets alone, so that all servers have the same client. */
export interface HttpClient extends Party {
  /** Calls a second, with `inFlight` connections that each wait for an answer. */
  calls(port: number, inFlight: number, durationMs: number): Promise<number>;
  /** GB a second of bodies of 64 MiB, one after another. */
  upload(port: number, durationMs: number): Promise<number>;
}

const json = JSON.stringify(smallObject);
const call = Buffer.from(
  `POST /bench.echo.v1.Echo/Echo HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\ncontent-length: ${json.length}\r\n\r\n${json}`,
);
const bodyBytes = 64 * 2 ** 20;
const piece = Buffer.alloc(2 ** 18);
const head = `PUT /bench.echo.v1.Echo/store HTTP/1.1\r\nhost: bench\r\ncontent-length: ${bodyBytes}\r\n\r\n`;

export async function open(): Promise<HttpClient> {
  return {
    async calls(port, inFlight, durationMs) {
      const startMs = performance.now();
      const counts = await Promise.all(
        Array.from({ length: inFlight }, () =>
          onConnection(port, async (socket, answer) => {
            let count = 0;
            while (performance.now() - startMs < durationMs) {
              socket.write(call);
              await answer('"text"');
              count++;
            }
            return count;
          }),
        ),
      );
      return (counts.reduce((sum, count) => sum + count, 0) * 1000) / (performance.now() - startMs);
    },
    async upload(port, durationMs) {
      const startMs = performance.now();
      const bytes = await onConnection(port, async (socket, answer) => {
        let sent = 0;
        while (performance.now() - startMs < durationMs) {
          socket.write(head);
          for (let at = 0; at < bodyBytes; at += piece.byteLength)
            if (!socket.write(piece)) await new Promise((resolve) => socket.once("drain", resolve));
          await answer(`"bytes":${bodyBytes}`);
          sent += bodyBytes;
        }
        return sent;
      });
      return bytes / 1e6 / (performance.now() - startMs);
    },
    async close() {},
  };
}

/** Runs work on a connection. `answer` waits for an answer that has the text. */
async function onConnection<T>(
  port: number,
  work: (socket: Socket, answer: (has: string) => Promise<void>) => Promise<T>,
): Promise<T> {
  const socket = connect({ port, host: "127.0.0.1", noDelay: true });
  let received: (text: string) => void = () => {};
  let fail: (error: Error) => void = () => {};
  socket.on("data", (data) => received(data.toString("latin1")));
  socket.on("error", (error) => fail(error));
  socket.on("close", () => fail(new Error("the server has closed the connection")));
  const answer = (has: string) =>
    new Promise<void>((resolve, reject) => {
      let all = "";
      fail = reject;
      received = (text) => {
        all += text;
        if (all.includes(has)) resolve();
        else if (/^HTTP\/1\.1 [^2]/.test(all)) reject(new Error(all));
      };
    });
  try {
    await new Promise<void>((resolve, reject) => {
      fail = reject;
      socket.once("connect", resolve);
    });
    return await work(socket, answer);
  } finally {
    fail = () => {};
    socket.destroy();
  }
}
