// Strangers that say hello to a sealed server, one after another, and then nothing: nobody vouches for them.
import { randomBytes } from "node:crypto";
import { Duplex } from "node:stream";
import { connect } from "node:tls";
import type { Port, PortSink } from "../../../src/fabric/port.ts";
import { obey, settings, tell } from "./commands.ts";

const { url, addresses } = settings<{ readonly url: string; readonly addresses: number }>();

// A port without an engine is nothing a user can reach; the package's own files find the addon.
const own = (file: string) => import(new URL(`../../../../dist/${file}.js`, import.meta.url).href);
const { openConnectingPort }: typeof import("../../../src/fabric/open-port.ts") =
  await own("fabric/open-port");
const { locate }: typeof import("../../../src/fabric/target.ts") = await own("fabric/target");
const { defaultLayout }: typeof import("../../../src/fabric/port.ts") = await own("fabric/port");
const { openingMessage, packSecureHello }: typeof import("../../../src/session/opening/opening-message.ts") =
  await own("session/opening/opening-message");
const { frameKind }: typeof import("../../../src/wire/frame.ts") = await own("wire/frame");
const { protocolVersion }: typeof import("../../../src/wire/message.ts") = await own("wire/message");
const { encode }: typeof import("../../../src/wire/codec.ts") = await own("wire/codec");

interface Stranger {
  readonly port: Port;
  readonly server: number;
  readonly replyTo: Uint8Array;
}

const target = await locate(url);
const strangers: Stranger[] = [];
for (let i = 0; i < addresses; i++) {
  const port = await openConnectingPort(target, defaultLayout);
  const { address, replyTo } = port.route(target);
  strangers.push({ port, server: port.admit(address), replyTo });
}
const flight = await firstFlight();

/** What a client of TLS says first. */
function firstFlight(): Promise<Uint8Array> {
  return new Promise((resolve) => {
    const wire = new Duplex({
      read() {},
      write(bytes: Buffer, _, done) {
        resolve(Uint8Array.from(bytes));
        done();
      },
    });
    connect({ socket: wire, ALPNProtocols: ["cinnabar/1"], minVersion: "TLSv1.3" }).on("error", () => {});
  });
}

let answers = 0;
const sink: PortSink = {
  onMessage: () => void answers++,
  onMessageLost() {},
  onPutNotification() {},
  onPeerGone() {},
};

let left = 0;
let failed = 0;
const listener = {
  onSent(status: number) {
    left++;
    if (status !== 0) failed++;
  },
};

function sayHello({ port, server, replyTo }: Stranger): boolean {
  const slot = port.takeSlot();
  if (slot < 0) return false;
  const hello = {
    versions: [protocolVersion, protocolVersion] as const,
    session: 1,
    nonce: randomBytes(8).readBigUInt64LE(),
    address: replyTo,
    messageBytes: port.slotBytes,
    suites: [1],
    flight,
  };
  const message = openingMessage(frameKind.hello, 0, encode(packSecureHello(hello)));
  port.slab.set(message, slot);
  port.send(server, slot, message.byteLength, listener);
  return true;
}

obey({
  /** Says so many hellos, as fast as they leave; answers when all have left. */
  async flood(hellos: number) {
    for (let said = 0; left < hellos; ) {
      for (const stranger of strangers) {
        if (said < hellos && sayHello(stranger)) said++;
        stranger.port.progress(0, sink);
      }
      await new Promise(setImmediate);
    }
    return { answers, failed };
  },
});
tell("ready");
