import { spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { type EngineOptions, implement, service, unary } from "cinnabar";
import { describeFabrics, type RdmaDeviceReport } from "cinnabar/inspect";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { openEngine } from "../matrix/pair.ts";
import { verbsDevices } from "../matrix/verbs.ts";
import { failure } from "../matrix/wait.ts";

const Where = service("where.v1", {
  ask: unary({ input: z.object({ who: z.string() }), output: z.object({ answer: z.string() }) }),
});
const where = implement(Where, {
  ask: ({ who }) => ({ answer: `hello ${who}` }),
});

const cli = fileURLToPath(new URL("../../dist/cli/bin/cinnabar.js", import.meta.url));

/** The device that has one of the addresses lent to the tests. */
function deviceAt(host: string): RdmaDeviceReport {
  const found = describeFabrics().devices.find(({ addresses }) => addresses.includes(host));
  if (found === undefined) return expect.fail(`no RDMA device has ${host}`);
  return found;
}

async function listenAt(listen: string, options: EngineOptions = {}) {
  const engine = await openEngine({ listen, serve: [where], ...options });
  return { engine, hosts: engine.urls.map((url) => new URL(url.replace("verbs", "http")).hostname) };
}

describe.skipIf(verbsDevices.length === 0)("a device is chosen", () => {
  describe.each(verbsDevices)("verbs on $name", ({ host }) => {
    it("by its name, and by its interface's, in a URL that is listened at", async () => {
      const { device, ports } = deviceAt(host);
      expect((await listenAt(`verbs://${device}:0`)).hosts).toEqual([host]);
      const name = ports[0]?.interfaces[0]?.name;
      expect((await listenAt(`verbs://${name}:0`)).hosts).toEqual([host]);
    });

    it("among all, by device, port, interface, subnet or identifier", async () => {
      const { device, ports } = deviceAt(host);
      const [port] = ports;
      // The last of several identifiers is that of an IP address.
      const gid = port?.gids.at(-1)?.gid as string;
      for (const verbs of [
        { device },
        { device: `${device}:1` },
        { interface: port?.interfaces[0]?.name as string },
        { subnet: `${host}/32` },
        { gid },
        { device, subnet: `${host.replace(/\d+$/, "0")}/24`, gid },
      ]) {
        const { engine, hosts } = await listenAt("verbs://*:0", { verbs });
        expect(hosts, JSON.stringify(verbs)).toEqual([host]);
        await engine.close();
      }
    });

    it("to connect from", async () => {
      const { engine: server } = await listenAt(`verbs://${host}:0`);
      const url = server.urls[0] as string;
      const there = describeFabrics().devices.find(
        ({ addresses }) =>
          !addresses.includes(host) &&
          addresses.some((address) => address.startsWith(host.replace(/\d+$/, ""))),
      ) as RdmaDeviceReport;
      const client = await openEngine({ verbs: { device: there.device } });
      const api = (await client.connect(url)).client(Where);
      expect(await api.ask({ who: "you" })).toEqual({ answer: "hello you" });
      expect(client.stats().ports.map((port) => port.url)).toEqual([
        expect.stringContaining(there.addresses[0] as string),
      ]);
    });

    it("by what cinnabar info prints of it", () => {
      const { stdout } = spawnSync(process.execPath, [cli, "info", "--all"], {
        encoding: "utf8",
        env: { ...process.env, NODE_OPTIONS: "" },
      });
      const { device, transport } = deviceAt(host);
      const line = stdout.split("\n").find((each) => each.startsWith(`${device}:1 `));
      expect(line).toMatch(
        new RegExp(`^\\S+ +${transport} +ACTIVE +Ethernet .* v${device} \\(\\d+\\) +${host} +[0-9a-f:]{39} `),
      );
      expect(stdout).toMatch(/^verbs:\/\/ +verbs;ofi_rxm +yes$/m);
      expect(stdout).toMatch(new RegExp(`^verbs://${host} +verbs;ofi_rxm +${device} +\\d+ `, "m"));
    });

    it("and a choice that nothing fits lists what there is", async () => {
      const { device } = deviceAt(host);
      const error = await failure(listenAt("verbs://*:0", { verbs: { device, subnet: "192.0.2.0/24" } }));
      expect(error.code).toBe("invalid_argument");
      expect(error.message).toContain(`no RDMA device with subnet 192.0.2.0/24, device ${device} matches`);
      expect(error.message).toContain(`${device}:1`);
      expect(error.message).toContain(host);
      const client = await openEngine({ verbs: { device: "absent0" } });
      expect((await failure(client.connect(`verbs://${host}:7400`))).message).toContain("device absent0");
    });
  });

  it("verbs on every device: a wildcard listens at each of them, and each answers", async () => {
    const { engine, hosts } = await listenAt("verbs://*:7400");
    const all = describeFabrics().devices.flatMap(({ addresses }) => addresses);
    expect([...hosts].sort()).toEqual([...all].sort());
    const client = await openEngine();
    for (const url of engine.urls) {
      expect(url).toMatch(/:7400$/);
      const api = (await client.connect(url, { timeoutMs: 30_000 })).client(Where, { timeoutMs: 30_000 });
      expect(await api.ask({ who: url })).toEqual({ answer: `hello ${url}` });
    }
    expect((await listenAt("verbs://0.0.0.0:0")).hosts.sort()).toEqual([...all].sort());
  });
});

describe.skipIf(verbsDevices.length > 0)("without a device", () => {
  it("a wildcard and a choice say why", async () => {
    for (const [listen, verbs] of [
      ["verbs://*:0", {}],
      ["verbs://0.0.0.0:0", {}],
      ["verbs://127.0.0.1:0", { device: "mlx5_0" }],
    ] as const) {
      const error = await failure(openEngine({ listen, verbs }));
      expect(error.code).toBe("unimplemented");
      expect(error.message).toContain("RDMA device");
    }
  });

  it("what cannot be connected to is refused", async () => {
    const engine = await openEngine();
    await expect(engine.connect("verbs://*:7400")).rejects.toThrow(TypeError);
  });

  it("an unknown option throws", async () => {
    await expect(openEngine({ verbs: { devise: "x" } as object })).rejects.toThrow(
      'Engine.open: unknown option "verbs.devise"',
    );
  });
});
