import { expect, it, onTestFinished } from "vitest";
import { openConnectingPort, openListeningPort } from "../../src/fabric/open-port.ts";
import { defaultLayout, type PortSink } from "../../src/fabric/port.ts";
import { locate } from "../../src/fabric/target.ts";

const messageBytes = 1000;
const turn = () => new Promise((resolve) => setImmediate(resolve));

// A session that ended with something under way cut its connection off. The next one with the same peer, made before the
// provider had noticed, was told of that end as if it were its own.
it("a peer that is met again at once is not told of the connection that its last session cut off", async () => {
  const reader = await openListeningPort("tcp://127.0.0.1:0", defaultLayout);
  onTestFinished(() => reader.close());
  const target = await locate(reader.url);
  const sender = await openConnectingPort(target, defaultLayout);
  onTestFinished(() => sender.close());
  const { address } = await sender.route(target);
  let arrived = 0;
  const disconnected: number[] = [];
  const sink: PortSink = {
    onMessage: () => void arrived++,
    onMessageLost: () => {},
    onPutNotification: () => {},
    onPeerGone: () => {},
    onDisconnected: (_, told) => void disconnected.push(told),
  };
  const send = (to: number): boolean => {
    const slot = sender.takeSlot();
    if (slot < 0) return false;
    sender.send(to, slot, messageBytes, { onSent: () => {} });
    return true;
  };
  const met = new Set<number>();
  for (let round = 0; round < 20; round++) {
    const to = sender.admit(address);
    met.add(to);
    const before = arrived;
    // The first may be lost with the old connection.
    while (arrived === before) {
      send(to);
      for (let i = 0; i < 20; i++) {
        sender.progress(0, sink);
        reader.progress(0, sink);
        await turn();
      }
    }
    // The reader stands still, so something is under way when the session ends.
    while (send(to)) sender.progress(0, sink);
    sender.forget(to);
  }
  expect(disconnected).toEqual([]);
});
