// A peer that keeps to the bytes of the protocol and to nothing else: it sends as much as it can.
import { once } from "node:events";
import { openConnectingPort } from "../../../src/fabric/open-port.ts";
import { defaultLayout, type SendListener } from "../../../src/fabric/port.ts";
import { locate } from "../../../src/fabric/target.ts";
import { decodeAt } from "../../../src/wire/decode-value.ts";
import { encode } from "../../../src/wire/encode-value.ts";
import { frameHeaderBytes, frameKind, writeHead } from "../../../src/wire/frame.ts";
import { packGreeting, parseGreeting } from "../../../src/wire/handshake.ts";
import {
  alignFrame,
  messageHeaderBytes,
  mostNumber,
  Nonce,
  noNonce,
  protocolVersion,
  unnumbered,
  writeMessageHeader,
} from "../../../src/wire/message.ts";
import { obey, settings, tell } from "./commands.ts";

const { url } = settings<{ readonly url: string }>();

const target = await locate(url);
const port = await openConnectingPort(target, defaultLayout);
const { address, replyTo } = await port.route(target);
const server = port.admit(address);

let welcome: { readonly session: number; readonly nonce: bigint } | undefined;
let goodbyes = 0;
/** A hello with the nonce of another session is answered by nobody. */
let nextNonce = 1n;
let number = 0;
let status = 0;
const listener: SendListener = {
  onSent(failed) {
    status ||= failed;
  },
};

function turn(): void {
  port.progress(0, {
    onMessage(_, offset) {
      const view = port.slabView;
      const at = offset + messageHeaderBytes;
      const kind = view.getUint8(at);
      const start = at + frameHeaderBytes;
      if (kind === frameKind.goodbye) goodbyes++;
      if (kind !== frameKind.welcome) return;
      const greeting = parseGreeting(decodeAt(port.slab, start, start + view.getUint32(at + 8, true)));
      if (typeof greeting === "string") throw new Error(greeting);
      welcome = greeting;
    },
    onMessageLost() {},
    onPutNotification() {},
    onPeerGone() {},
  });
}

async function connect(): Promise<void> {
  welcome = undefined;
  goodbyes = 0;
  number = unnumbered;
  const body = encode(
    packGreeting({
      versions: [protocolVersion, protocolVersion],
      incarnation: 1n,
      session: 1,
      nonce: nextNonce++,
      address: replyTo,
      agent: "greedy",
      messageBytes: port.slotBytes,
      bodyBytes: 1 << 20,
      requests: 1,
      immediateBytes: 0,
      heartbeatMs: 60_000,
      bodyStallMs: 10_000,
      services: [],
    }),
  );
  let slot = port.takeSlot();
  for (; slot < 0; slot = port.takeSlot()) {
    turn();
    await new Promise(setImmediate);
  }
  const bytes = messageHeaderBytes + frameHeaderBytes + alignFrame(body.byteLength);
  port.slab.fill(0, slot, slot + bytes);
  writeMessageHeader(port.slabView, slot, 1, bytes, 0, noNonce, unnumbered);
  writeHead(
    port.slabView,
    slot + messageHeaderBytes,
    { kind: frameKind.hello, method: 0, callId: 0, word: 0 },
    0,
    body.byteLength,
  );
  port.slab.set(body, slot + messageHeaderBytes + frameHeaderBytes);
  port.send(server, slot, bytes, listener);
  while (welcome === undefined) {
    turn();
    await new Promise(setImmediate);
  }
}

/** Sends full messages of frames of that kind for so long, and begins a new session when one is ended. */
async function flood({ kind, forMs }: { kind: number; forMs: number }): Promise<object> {
  const untilMs = performance.now() + forMs;
  const frames = Math.floor((port.slotBytes - messageHeaderBytes) / frameHeaderBytes);
  let sent = 0;
  let sessions = 0;
  while (performance.now() < untilMs && status === 0) {
    if (welcome === undefined || goodbyes > 0) {
      await connect();
      sessions++;
    }
    for (let slot = port.takeSlot(); slot >= 0; slot = port.takeSlot()) {
      let at = messageHeaderBytes;
      for (let i = 0; i < frames; i++, at += frameHeaderBytes)
        writeHead(port.slabView, slot + at, { kind, method: 0, callId: 1 << 20, word: 1 }, 0, 0);
      const { session, nonce } = welcome as NonNullable<typeof welcome>;
      number = (number % mostNumber) + 1;
      writeMessageHeader(port.slabView, slot, frames, at, session, new Nonce(nonce), number);
      port.send(server, slot, at, listener);
      sent += frames;
    }
    turn();
    await new Promise(setImmediate);
  }
  return { sent, sessions, status };
}

obey({
  flood,
  async close() {
    port.close();
    setImmediate(() => process.exit(0));
    await once(process, "exit");
  },
});
tell("ready");
