import { Engine, type Peer } from "cinnabar";
import { onTestFinished } from "vitest";
import { packedGreeting } from "../../../src/session/connection/fake-services.test-support.ts";
import { frameKind } from "../../../src/wire/frame.ts";
import { type Greeting, parseGreeting, type ServiceTable } from "../../../src/wire/handshake.ts";
import { Attacker, bodyOf } from "./attacker.ts";

/** An honest client of a server that writes every byte by hand. */
export async function hostileServer(
  services: ServiceTable,
): Promise<{ readonly client: Engine; readonly peer: Peer; readonly server: Attacker }> {
  const client = await Engine.open();
  const server = await Attacker.listening();
  onTestFinished(async () => {
    await client.close();
    server.port.close();
  });
  const connecting = client.connect(server.port.url);
  const hello = parseGreeting(bodyOf(await server.next(frameKind.hello))) as Greeting;
  server.faceTo(hello.address);
  server.session = hello.session;
  server.nonce = hello.nonce;
  await server.sendFrames({
    kind: frameKind.welcome,
    body: { ...packedGreeting({ services, requests: 100 }), adr: new Uint8Array(0), msg: 16_384 },
  });
  const state: { peer?: Peer } = {};
  connecting.then((peer) => {
    state.peer = peer;
  });
  await server.until(() => state.peer !== undefined, "session");
  return { client, peer: state.peer as Peer, server };
}
