import { randomBytes } from "node:crypto";
import { writeFile } from "node:fs/promises";
import { afterEach, describe, expect, it, vi } from "vitest";
import { ControllerAuthentication } from "../src/authentication/controller-side.ts";
import {
  makeSecret,
  memoryDevice,
  type NvmeAdmittedHost,
  type NvmeDhGroup,
  type NvmeHash,
  NvmeHost,
  NvmeTarget,
} from "../src/index.ts";
import {
  connect,
  fio,
  hostNqn,
  isGuest,
  mib,
  pathsOf,
  targetHosts,
  verified,
} from "./kernel.test-support.ts";
import { type HostValues, linuxTarget, nqn as nqnOfLinux } from "./linux-target.test-support.ts";

const nqn = "nqn.2026-11.test:secrets";
const bytes = 16 * mib;

/** Each hash function, each group, and each form of secrets. */
const ways: readonly (readonly [NvmeHash, NvmeDhGroup, NvmeHash])[] = [
  ["sha256", "null", "sha256"],
  ["sha384", "ffdhe2048", "sha512"],
  ["sha512", "ffdhe3072", "sha384"],
  ["sha256", "ffdhe4096", "sha384"],
  ["sha384", "ffdhe6144", "sha256"],
  ["sha512", "ffdhe8192", "sha512"],
];

afterEach(() => vi.restoreAllMocks());

/** A target that admits the host of Linux by a secret. */
function serve(proof: Omit<NvmeAdmittedHost, "nqn">): Promise<NvmeTarget> {
  const hosts = [{ nqn: hostNqn, ...proof }];
  return NvmeTarget.listen({ subsystems: [{ nqn, namespaces: [memoryDevice({ bytes })], hosts }], port: 0 });
}

const secretOptions = (secret: string, controllerSecret?: string): readonly string[] => [
  `--dhchap-secret=${secret}`,
  ...(controllerSecret === undefined ? [] : [`--dhchap-ctrl-secret=${controllerSecret}`]),
];

async function writes(disk: string): Promise<void> {
  const job = await fio(disk, ...verified, "--rw=randwrite", "--bs=4k", "--iodepth=8", "--size=4M");
  expect(job.read.io_bytes).toBe(4 * mib);
}

describe.skipIf(!isGuest)("Linux as host that proves a secret", () => {
  it.each(ways)(
    "by %s and %s, with a secret of %s",
    async (hash, dhGroup, form) => {
      const [secret, controllerSecret] = [makeSecret(form), makeSecret(form)];
      await using target = await serve({ secret, controllerSecret, hashes: [hash], dhGroups: [dhGroup] });
      const { port } = target.address;
      await using host = await connect(nqn, [port], ["-i", "2", ...secretOptions(secret, controllerSecret)]);
      await writes(host.disk);
    },
    120_000,
  );

  it("over RDMA", async () => {
    const [secret, controllerSecret] = [makeSecret(), makeSecret()];
    await using target = await serve({ secret, controllerSecret });
    const { port } = await target.listenRdma({ host: targetHosts.rdma, port: 0 });
    const options = ["-i", "2", ...secretOptions(secret, controllerSecret)];
    await using host = await connect(nqn, [port], options, "rdma");
    await writes(host.disk);
  }, 120_000);

  it("has it proved on its own side alone, and again when the secret is written again", async () => {
    const secret = makeSecret();
    await using target = await serve({ secret });
    await using host = await connect(nqn, [target.address.port], secretOptions(secret));
    const taken = vi.spyOn(ControllerAuthentication.prototype, "take");
    const device = pathsOf(nqn)[0]?.device.replace("/dev/", "");
    await writeFile(`/sys/class/nvme/${device}/dhchap_secret`, secret);
    // Negotiation and reply, on the admin queue and on the I/O queue.
    await expect.poll(() => taken.mock.calls.length, { timeout: 60_000 }).toBe(4);
    await writes(host.disk);
    expect(target.stats().controllers).toBe(1);
  }, 120_000);

  it("is refused without a secret and with another, and the one that is connected goes on", async () => {
    const [secret, controllerSecret] = [makeSecret(), makeSecret()];
    await using target = await serve({ secret, controllerSecret });
    const { port } = target.address;
    await using host = await connect(nqn, [port], secretOptions(secret, controllerSecret));
    const again = ["--duplicate-connect"];
    for (const options of [
      [],
      secretOptions(makeSecret()),
      secretOptions(makeSecret("sha512"), controllerSecret),
      // Here it is the host that refuses.
      secretOptions(secret, makeSecret()),
    ])
      await expect(connect(nqn, [port], [...again, ...options])).rejects.toThrow();
    await expect.poll(() => target.stats()).toMatchObject({ controllers: 1, inHandshake: 0 });
    await writes(host.disk);
  }, 120_000);

  it("is refused where it wants a proof of a target that has no secret of its own", async () => {
    const secret = makeSecret();
    await using target = await serve({ secret });
    const { port } = target.address;
    await expect(connect(nqn, [port], secretOptions(secret, makeSecret()))).rejects.toThrow();
    await expect.poll(() => target.stats().controllers).toBe(0);
  }, 120_000);
});

describe.skipIf(!isGuest)("NvmeHost that proves a secret to nvmet, the kernel's target", () => {
  const connectTo = (port: number, secrets: { secret?: string; controllerSecret?: string }) =>
    NvmeHost.connect({
      ...{ nqn: nqnOfLinux, hostNqn, queues: 2, ...secrets },
      paths: [{ host: "127.0.0.1", port }],
    });
  const valuesOf = (secret: string, more: HostValues): HostValues => ({ dhchap_key: secret, ...more });

  it.each(ways)(
    "by %s and %s, with a secret of %s",
    async (hash, dhGroup, form) => {
      const [secret, controllerSecret] = [makeSecret(form), makeSecret(form)];
      const values = {
        dhchap_ctrl_key: controllerSecret,
        dhchap_hash: `hmac(${hash})`,
        dhchap_dhgroup: dhGroup,
      };
      await using target = await linuxTarget(valuesOf(secret, values));
      await using host = await connectTo(target.port, { secret, controllerSecret });
      const data = randomBytes(64 * 1024);
      await host.namespaces[0]?.write(0, data);
      expect(await host.namespaces[0]?.compare(0, data)).toBe(true);
    },
    120_000,
  );

  it("is refused with another secret, and refuses a target with another", async () => {
    const [secret, controllerSecret] = [makeSecret(), makeSecret()];
    await using target = await linuxTarget(valuesOf(secret, { dhchap_ctrl_key: controllerSecret }));
    await using host = await connectTo(target.port, { secret });
    await expect(connectTo(target.port, {})).rejects.toThrow("the target wants a secret");
    await expect(connectTo(target.port, { secret: makeSecret() })).rejects.toThrow(
      "the target refused the secret of this host",
    );
    await expect(connectTo(target.port, { secret, controllerSecret: makeSecret() })).rejects.toThrow(
      "the target did not prove that it has controllerSecret",
    );
    await host.namespaces[0]?.write(0, Buffer.alloc(4096, 1));
  }, 120_000);
});
