import { describe, expect, it } from "vitest";
import { RpcError } from "../base/errors/rpc-error.ts";
import { FakeClock } from "../base/time/fake-clock.test-support.ts";
import { IncomingCall } from "../call/incoming-call.ts";
import { watchUsers } from "../memory/memory-users.ts";
import { RemoteRegion } from "../memory/remote-region.ts";
import { FakePort } from "../session/connection/fake-port.test-support.ts";
import { FakeServices } from "../session/connection/fake-services.test-support.ts";
import type { PeerLink } from "./control/peer-link.ts";
import type { SealedPlan } from "./control/sealed-bulk.ts";
import { transfer } from "./transfer.ts";

function setUp() {
  const port = new FakePort();
  const way: Partial<PeerLink> = {
    port,
    address: 1,
    clock: new FakeClock(),
    services: new FakeServices(),
  };
  const peer = way as PeerLink;
  const call = new IncomingCall({ takeOutcome: () => {} }, 1 << 20, 0);
  const segments = [{ key: 5n, address: 0n, bytes: 100 }];
  const remote = new RemoteRegion(call, { bytes: 100, access: 3, segments });
  return { port, peer, call, remote };
}

const failure = (promise: Promise<unknown>): Promise<RpcError> =>
  promise.then(
    () => expect.fail("it did not fail"),
    (error: RpcError) => error,
  );

/** The types of this library's version do not know the option. */
const resizableMemory = (): ArrayBuffer =>
  new (ArrayBuffer as new (bytes: number, options: object) => ArrayBuffer)(8, { maxByteLength: 16 });

describe("a transfer that travels sealed", () => {
  it("keeps its local memory until its pieces are done, and refuses memory that may shrink", async () => {
    const all = setUp();
    const plans: SealedPlan[] = [];
    const sealedMover = {
      start(plan: SealedPlan) {
        plans.push(plan);
        return { stop: () => {} };
      },
    };
    const peer = { ...all.peer, sealedMover };
    const local = new Uint8Array(20);
    let isFree = false;
    watchUsers(local.buffer, () => {
      isFree = true;
    });
    const got = transfer("get", peer, all.call, all.remote, local, { offset: 10 });
    expect([plans[0]?.parts, isFree]).toEqual([[{ key: 5n, offset: 10, local: [local] }], false]);
    plans[0]?.listener.onMoved(20);
    plans[0]?.listener.onEnded(0);
    expect([await got, isFree, all.port.pulls.length]).toEqual([20, true, 0]);
    const resizable = new Uint8Array(resizableMemory());
    expect((await failure(transfer("get", peer, all.call, all.remote, resizable))).message).toContain(
      "resizable",
    );
    expect(plans).toHaveLength(1);
  });

  it("fails with what its owner says, and names how much is in place", async () => {
    const all = setUp();
    const sealedMover = {
      start({ listener }: SealedPlan) {
        listener.onMoved(8);
        listener.onEnded(new RpcError({ code: "not_found", message: "gone", origin: "remote" }));
        return { stop: () => {} };
      },
    };
    const error = await failure(
      transfer("put", { ...all.peer, sealedMover }, all.call, all.remote, new Uint8Array(20)),
    );
    expect(error).toMatchObject({ code: "permission_denied", transferredBytes: 8 });
    expect(error.message).toContain("put of 20 bytes at offset 0 ended after 8 bytes: gone");
  });
});
