import { afterEach, describe, expect, it } from "vitest";
import { addonIfThere } from "../../fabric/libfabric/libfabric.ts";
import { NativePort } from "../../fabric/native-port.ts";
import { defaultLayout, type Port, type PortSink } from "../../fabric/port.ts";
import { SessionCiphers } from "../../security/sealing/session-ciphers.ts";
import { frameKind, isKeepalive, senderState } from "../../wire/frame.ts";
import { messageHeaderBytes, Nonce, writeMessageHeader } from "../../wire/message.ts";
import { peerGreeting } from "../connection/fake-services.test-support.ts";
import { keepalive } from "./keepalive.ts";

const closing: { close(): void }[] = [];
afterEach(() => {
  for (const one of closing.splice(0).reverse()) one.close();
  expect(addonIfThere()?.aeads()).toBe(0);
});

async function open(scheme: "shm" | "tcp"): Promise<NativePort> {
  const host = scheme === "tcp" ? "127.0.0.1" : "";
  const port = await NativePort.open({ scheme, host, port: 0, name: "" }, true, defaultLayout);
  closing.push(port);
  return port;
}

function admit(from: NativePort, to: NativePort): number {
  const [scheme, rest] = to.url.split("://") as ["shm" | "tcp", string];
  const [host = "", port] = rest.split(":");
  const target =
    scheme === "shm" ? { scheme, name: rest } : { scheme, host, port: Number(port), from: "127.0.0.1" };
  return from.admit(from.route(target as never).address);
}

function say(port: NativePort, address: number, nonce: Nonce): void {
  const slot = port.takeSlot();
  writeMessageHeader(port.slabView, slot, 0, messageHeaderBytes, 3, nonce, 1);
  port.send(address, slot, messageHeaderBytes, { onSent: () => {} });
}

describe.each(["shm", "tcp"] as const)("the guard of a port over %s", (scheme) => {
  it("seals a keepalive for each time that it is asked, which the peer opens once each", async () => {
    const secret = () => new Uint8Array(32).fill(6);
    const ours = SessionCiphers.from(secret(), "acceptor", "aes-256-gcm");
    const peers = SessionCiphers.from(secret(), "connector", "aes-256-gcm");
    closing.push(ours, peers);
    const [stalled, peer] = [await open(scheme), await open(scheme)];
    const nonce = new Nonce(0x7777_0000_1111n);
    const greeting = { ...peerGreeting, heartbeatMs: 80 };
    stalled.vouch(admit(stalled, peer), keepalive({ nonce, ciphers: ours }, greeting, 60_000));
    const to = admit(peer, stalled);

    const heard: Uint8Array[] = [];
    const sink: PortSink = {
      onMessage: (port: Port, offset, bytes) =>
        void heard.push(Uint8Array.from(port.slab.subarray(offset, offset + bytes))),
      onMessageLost: () => {},
      onPutNotification: () => {},
      onPeerGone: () => {},
    };
    // From here on only its guard drives the stalled port, because this thread does not turn its loop.
    say(peer, to, nonce);
    const untilMs = performance.now() + 30_000;
    while (heard.length < 3 && performance.now() < untilMs) peer.progress(0, sink);
    expect(heard.length).toBeGreaterThanOrEqual(3);
    const opens = (message: Uint8Array) => {
      const slab = Uint8Array.from(message);
      const slabView = new DataView(slab.buffer);
      const opened = peers.guard.opener.open({ slab, slabView }, 0, message.byteLength);
      return opened && isKeepalive(slabView, messageHeaderBytes);
    };
    const counts = heard.map(({ buffer }) => new DataView(buffer).getBigUint64(24, true));
    expect(counts).toEqual(heard.map((_, i) => BigInt(i + 1)));
    expect(heard[0]?.subarray(32, 36)).not.toEqual(Uint8Array.of(frameKind.pong, 0, senderState.busy, 0));
    expect(heard.map(opens)).toEqual(heard.map(() => true));
    expect(heard.map(opens)).toEqual(heard.map(() => false));
  });
});

describe("a native port", () => {
  it("takes over the cipher of a vouch, and closes it with the vouch", async () => {
    const port = await open("tcp");
    const ours = SessionCiphers.from(new Uint8Array(32), "acceptor", "aes-256-gcm");
    closing.push(ours);
    const address = admit(port, await open("tcp"));
    const before = addonIfThere()?.aeads() as number;
    port.vouch(address, keepalive({ nonce: new Nonce(5n), ciphers: ours }, peerGreeting, 1000));
    expect(addonIfThere()?.aeads()).toBe(before - 1);
    expect(() => ours.guard.sealing.sealMessage(new Uint8Array(64), 0, 32, 16, 1)).toThrow(
      "keys of this session are gone",
    );
    port.unvouch(address);
    port.forget(address);
  });
});
