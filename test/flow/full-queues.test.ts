import { describe, expect, it, onTestFinished } from "vitest";
import { openConnectingPort, openListeningPort } from "../../src/fabric/open-port.ts";
import type { PortSink } from "../../src/fabric/port.ts";
import { defaultLayout } from "../../src/fabric/port.ts";
import { locate } from "../../src/fabric/target.ts";
import { type Provider, transports } from "../matrix/providers.ts";

const { sendSlots, receiveSlots } = defaultLayout;
const messageBytes = 1000;
const turn = () => new Promise((resolve) => setImmediate(resolve));

/**
 * How many messages may lie unread. On Soft-RoCE and tcp more than the 896 receives that libfabric posts for a verbs
 * port: the device has the sender wait. Over iWARP there is no such answer, and a message without a receive ends the
 * connection (docs/design/verbs.md).
 */
const unreadOf = ({ name }: Provider) => (name === "verbs on siw" ? 800 : 1500);
/**
 * Whether so many do not fit into what lies between: shm's queue, the receives of a device. tcp's sockets may take them
 * all.
 */
const holdsBack = ({ name, scheme }: Provider) =>
  scheme === "shm" || (scheme === "verbs" && name !== "verbs on siw");
/** How many turns in which nothing leaves show that the sender is held back. */
const stillTurns = 500;

/**
 * A port that sends numbered messages to one that reads them when it is told to; no sessions between, whose credits
 * would keep the queues from filling.
 */
async function open(provider: Provider) {
  const reader = await openListeningPort(provider.freshUrl(), defaultLayout);
  onTestFinished(() => reader.close());
  const target = await locate(reader.url);
  const sender = await openConnectingPort(target, defaultLayout);
  onTestFinished(() => sender.close());
  const to = sender.admit((await sender.route(target)).address);
  const read: number[] = [];
  const ends: number[] = [];
  let sent = 0;
  const sink: PortSink = {
    onMessage: (port, offset, bytes) => {
      expect(bytes).toBe(messageBytes);
      read.push(port.slabView.getUint32(offset, true));
    },
    onMessageLost: (_, status) => expect.fail(`a message was lost: ${status}`),
    onPutNotification: () => {},
    onPeerGone: () => expect.fail("the peer is gone"),
  };
  const sendFrom = (slot: number) => {
    sender.slabView.setUint32(slot, sent++, true);
    sender.send(to, slot, messageBytes, { onSent: (status) => ends.push(status) });
  };
  return {
    reader,
    sender,
    read,
    ends,
    sink,
    sendFrom,
    /** Sends until there is no slot, or so many have been sent in all: how many have been. */
    send(most: number): number {
      while (sent < most) {
        const slot = sender.takeSlot();
        if (slot < 0) break;
        sendFrom(slot);
      }
      return sent;
    },
    async until(condition: () => boolean, readsToo: boolean): Promise<void> {
      const end = performance.now() + 60_000;
      while (!condition()) {
        if (performance.now() > end) expect.fail(`waited in vain, with ${sent} sent and ${read.length} read`);
        sender.progress(0, sink);
        if (readsToo) reader.progress(0, sink);
        await turn();
      }
    },
  };
}

describe.each(transports)("full queues of a port over $name", (provider) => {
  it("hold back the sender, and lose nothing", async () => {
    const { reader, sender, read, ends, sink, send, sendFrom, until } = await open(provider);
    // Where there are connections it takes both sides to make one.
    send(1);
    await until(() => read.length === 1 && ends.length === 1, true);

    const slots = Array.from({ length: sendSlots }, () => sender.takeSlot());
    expect(new Set(slots).size).toBe(sendSlots);
    expect(sender.takeSlot()).toBe(-1);
    const full = { depth: sendSlots, used: sendSlots, highest: sendSlots };
    expect(sender.describe().queues.send).toEqual(full);
    slots.forEach(sendFrom);

    // Nobody reads: the messages fill what lies between, until the sender is held back or as many are under way as the
    // network bears.
    const unread = unreadOf(provider);
    let still = 0;
    let before = ends.length;
    await until(() => {
      const done = send(unread) === unread && ends.length === unread;
      still = ends.length === before ? still + 1 : 0;
      before = ends.length;
      return done || still > stillTurns;
    }, false);
    expect(read.length).toBe(1);
    if (holdsBack(provider)) expect(ends.length).toBeLessThan(unread);

    reader.progress(0, sink);
    const all = unread + 2 * sendSlots;
    await until(() => send(all) === all && read.length === all && ends.length === all, true);
    expect(read).toEqual(read.map((_, index) => index));
    expect(ends.every((status) => status === 0)).toBe(true);
    // What has been read is given back with the next look.
    for (const port of [reader, sender]) port.progress(0, sink);
    const { receive } = reader.describe().queues;
    expect(receive).toMatchObject({ depth: receiveSlots, used: 0 });
    // A ring of shm holds fewer of these messages than there are receive slots, and so does a socket of Node that pauses.
    // A read of a device's queue gives 32, and a look ends with the first read that could give more (Port::reap).
    const isFilled = provider.scheme === "tcp";
    const least = provider.scheme === "verbs" ? 32 : sendSlots;
    expect(receive.highest).toBeGreaterThanOrEqual(isFilled ? receiveSlots : least);
    expect(receive.highest).toBeLessThanOrEqual(receiveSlots);
    expect(sender.describe().queues).toMatchObject({
      send: { used: 0 },
      completion: { used: 0 },
      waiting: 0,
    });
  });
});
