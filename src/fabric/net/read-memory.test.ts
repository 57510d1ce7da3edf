import { once } from "node:events";
import { connect, createServer, type Socket } from "node:net";
import { describe, expect, it } from "vitest";
import { type ReadsInPlace, takeOver } from "./read-memory.ts";

/** An accepted socket and the one that connected. */
async function pair(): Promise<[Socket, Socket]> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as { port: number };
  const connecting = connect({ port, host: "127.0.0.1" });
  const [accepted] = (await once(server, "connection")) as [Socket];
  server.close();
  return [accepted, connecting];
}

/** Reads to `buffer`, and reports each read. */
function into(buffer: Uint8Array, onRead: (text: string) => void): ReadsInPlace {
  const callback = (bytes: number): boolean => {
    onRead(Buffer.from(buffer.subarray(0, bytes)).toString());
    return true;
  };
  return { onread: { buffer, callback } };
}

describe("an accepted socket", () => {
  it("is taken over by one that reads in place", async () => {
    const [accepted, connecting] = await pair();
    const heard: string[] = [];
    const socket = takeOver(
      accepted,
      into(new Uint8Array(4), (text) => heard.push(text)),
    );
    expect(accepted.destroyed).toBe(true);
    connecting.setEncoding("utf8");
    socket?.write("and back");
    expect((await once(connecting, "data"))[0]).toBe("and back");
    connecting.end("in place");
    await once(socket as Socket, "end");
    expect(heard).toEqual(["in p", "lace"]);
  });

  it("is left as it is where its handle is not that of Node", async () => {
    const [accepted, connecting] = await pair();
    const handle = { of: "another version" };
    const other = Object.assign(Object.create(accepted), { _handle: handle }) as Socket;
    expect(
      takeOver(
        other,
        into(new Uint8Array(4), () => {}),
      ),
    ).toBeUndefined();
    expect(accepted.destroyed).toBe(false);
    connecting.end("as data");
    accepted.setEncoding("utf8");
    expect((await once(accepted, "data"))[0]).toBe("as data");
    accepted.destroy();
  });
});
