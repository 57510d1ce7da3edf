import { RpcError } from "cinnabar/standard";
import { expect, it } from "vitest";
import type { EtcdGateway } from "./gateway.ts";
import { Lease } from "./membership.ts";

/** etcd with a lease of a second. A renewal waits until the test answers it. */
class SlowGateway {
  readonly renewals: ((answer: object | Error) => void)[] = [];

  call(path: string): Promise<object> {
    if (path.endsWith("grant")) return Promise.resolve({ ID: "1", TTL: "1" });
    return new Promise((resolve, reject) =>
      this.renewals.push((answer) => (answer instanceof Error ? reject(answer) : resolve(answer))),
    );
  }
}

it("is overdue as soon as it may have ended, also while a renewal waits for its answer", async () => {
  const gateway = new SlowGateway();
  const { signal } = new AbortController();
  const lease = await Lease.grant(gateway as unknown as EtcdGateway, 1000, signal);
  let kept: Promise<void> | undefined;
  await new Promise<void>((resolve) => {
    kept = lease.keep(signal, resolve);
  });
  // Timers may be a millisecond early.
  expect(lease.remainingMs).toBeLessThan(2);
  expect(gateway.renewals.length).toBe(1);
  gateway.renewals[0]?.(new RpcError({ code: "permission_denied", message: "no" }));
  await expect(kept).rejects.toMatchObject({ code: "permission_denied" });
});
