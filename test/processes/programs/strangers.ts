// Strangers that say hello to a sealed server, one after another, and then nothing: nobody vouches for them.
import { randomBytes } from "node:crypto";
import { Duplex } from "node:stream";
import { connect } from "node:tls";
import { openConnectingPort } from "../../../src/fabric/open-port.ts";
import { defaultLayout, type Port, type PortSink } from "../../../src/fabric/port.ts";
import { locate } from "../../../src/fabric/target.ts";
import { encode } from "../../../src/wire/encode-value.ts";
import { frameKind } from "../../../src/wire/frame.ts";
import { cookieBytes, helloMessage, packSecureHello } from "../../../src/wire/hello.ts";
import { messageHeaderBytes, protocolVersion } from "../../../src/wire/message.ts";
import { obey, settings, tell } from "./commands.ts";

/** `from`: the host of loopback, such as 127.0.0.2, that the strangers are at. */
const { url, addresses, from } = settings<{
  readonly url: string;
  readonly addresses: number;
  readonly from?: string;
}>();

interface Stranger {
  readonly port: Port;
  readonly server: number;
  readonly replyTo: Uint8Array;
}

const found = await locate(url);
const target = from === undefined ? found : { ...found, from };
const strangers: Stranger[] = [];
for (let i = 0; i < addresses; i++) {
  const port = await openConnectingPort(target, defaultLayout);
  const { address, replyTo } = await port.route(target);
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
/** Cookies that came, with the hello that they are for. */
const cookies: { readonly stranger: Stranger; readonly nonce: bigint; readonly cookie: Uint8Array }[] = [];
const sink: PortSink = {
  onMessage: (port, offset, bytes) => {
    answers++;
    const stranger = strangers.find((each) => each.port === port);
    const kind = port.slabView.getUint8(offset + messageHeaderBytes);
    if (kind !== frameKind.retry || stranger === undefined) return;
    const nonce = port.slabView.getBigUint64(offset + 8, true);
    // Nothing follows the cookie.
    const cookie = Uint8Array.from(port.slab.subarray(offset + bytes - cookieBytes, offset + bytes));
    cookies.push({ stranger, nonce, cookie });
  },
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

function sayHello(
  { port, server, replyTo }: Stranger,
  nonce = randomBytes(8).readBigUInt64LE(),
  cookie?: Uint8Array,
): number {
  const slot = port.takeSlot();
  if (slot < 0) return 0;
  const hello = {
    versions: [protocolVersion, protocolVersion] as const,
    session: 1,
    nonce,
    cookie,
    address: replyTo,
    messageBytes: port.slotBytes,
    suites: [1],
    flight,
  };
  const message = helloMessage(encode(packSecureHello(hello)));
  port.slab.set(message, slot);
  port.send(server, slot, message.byteLength, listener);
  return message.byteLength;
}

let crowding = true;

obey({
  /**
   * Says hellos at so many bytes a second, and says those again that get a cookie, until `stop`. What it could not say
   * in a tenth of a second it does not make up for: a machine that is busy would be flooded.
   */
  async crowd(bytesPerSecond: number) {
    let said = 0;
    let due = 0;
    let nowMs = performance.now();
    for (let next = 0; crowding; ) {
      for (const { port } of strangers) port.progress(0, sink);
      const beforeMs = nowMs;
      nowMs = performance.now();
      due = Math.min(due + ((nowMs - beforeMs) / 1000) * bytesPerSecond, bytesPerSecond / 10);
      while (due > 0) {
        const again = cookies.pop();
        const stranger = again?.stranger ?? (strangers[next++ % strangers.length] as Stranger);
        const bytes = sayHello(stranger, again?.nonce, again?.cookie);
        if (bytes === 0) break;
        said += bytes;
        due -= bytes;
      }
      if (cookies.length > 1000) cookies.splice(0, 500);
      await new Promise(setImmediate);
    }
    return { answers, said };
  },
  stop: () => {
    crowding = false;
  },

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
