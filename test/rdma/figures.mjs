// `test/rdma/guest -- node test/rdma/figures.mjs`: calls and puts over each device beside tcp through the same cable, and beside libfabric's own
// ping-pong. The guest has one processor, so only the ratios say anything. Wants the built package (`npm run build`) and libfabric-bin.
import { execFile, fork, spawn } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { bulk, bytes, Engine, implement, service, unary } from "cinnabar";
import { z } from "zod";

const Figures = service("figures.v1", {
  echo: unary({ input: bytes(), output: bytes() }),
  put: unary({ input: z.object({ into: bulk("write"), times: z.number() }) }),
});
const warmUp = 50;
const calls = 400;
const block = 1 << 20;
const puts = 32;

const [role, url] = process.argv.slice(2);
if (role === "server") await serve(String(url));
else await measureAll();

/** @param {string} listen */
async function serve(listen) {
  const source = new Uint8Array(block);
  const figures = implement(Figures, {
    echo: (body) => body,
    async put({ into, times }, call) {
      for (let i = 0; i < times; i++) await call.put(source, into);
    },
  });
  const engine = await Engine.open({ listen, serve: [figures] });
  process.send?.(engine.urls[0]);
  process.on("disconnect", () => engine.close());
}

async function measureAll() {
  const rows = [];
  for (const [device, net] of /** @type {const} */ ([
    ["rxe", "10.77.1"],
    ["siw", "10.77.2"],
  ])) {
    const tcp = await measure(`tcp://${net}.1:0`);
    const verbs = await measure(`verbs://${net}.1:0`, `verbs://${net}.2:0`);
    const pingPong = await fabricPingPong(`${device}0`);
    rows.push({ device, tcp, verbs, pingPong });
  }
  for (const { device, tcp, verbs, pingPong } of rows) {
    console.log(
      `${device}: echo of 64 bytes, 1 in flight: verbs ${verbs.oneUs.toFixed(0)} µs, tcp ${tcp.oneUs.toFixed(0)} µs, verbs/tcp ${(verbs.oneUs / tcp.oneUs).toFixed(2)}`,
    );
    console.log(
      `${device}: echoes a second, 16 in flight: verbs ${verbs.perSecond.toFixed(0)}, tcp ${tcp.perSecond.toFixed(0)}, verbs/tcp ${(verbs.perSecond / tcp.perSecond).toFixed(2)}`,
    );
    console.log(
      `${device}: puts of 1 MiB: verbs ${verbs.mibPerSecond.toFixed(0)} MiB/s, tcp ${tcp.mibPerSecond.toFixed(0)} MiB/s, verbs/tcp ${(verbs.mibPerSecond / tcp.mibPerSecond).toFixed(2)}`,
    );
    console.log(
      pingPong === undefined
        ? `${device}: no fi_pingpong`
        : `${device}: fi_pingpong's round trip of 64 bytes: ${pingPong.toFixed(0)} µs, echo/fi_pingpong ${(verbs.oneUs / pingPong).toFixed(2)}`,
    );
  }
}

/**
 * @param {string} listen
 * @param {string} [from]
 */
async function measure(listen, from) {
  const server = fork(fileURLToPath(import.meta.url), ["server", listen]);
  const at = await new Promise((resolve) => server.once("message", resolve));
  const engine = await Engine.open(from === undefined ? {} : { listen: from });
  const api = (await engine.connect(String(at))).client(Figures, { timeoutMs: 60_000 });
  const body = new Uint8Array(64);
  for (let i = 0; i < warmUp; i++) await api.echo(body);
  const times = [];
  for (let i = 0; i < calls; i++) {
    const start = performance.now();
    await api.echo(body);
    times.push((performance.now() - start) * 1000);
  }
  const start = performance.now();
  await Promise.all(
    Array.from({ length: 16 }, async () => {
      for (let i = 0; i < calls / 8; i++) await api.echo(body);
    }),
  );
  const perSecond = (2 * calls * 1000) / (performance.now() - start);
  const into = engine.expose(new Uint8Array(block), { access: "write" });
  await api.put({ into, times: 2 });
  const putStart = performance.now();
  await api.put({ into, times: puts });
  const mibPerSecond = (puts * 1000) / (performance.now() - putStart);
  into.dispose();
  await engine.close();
  server.disconnect();
  await new Promise((resolve) => server.once("exit", resolve));
  times.sort((a, b) => a - b);
  return { oneUs: times[times.length >> 1] ?? Number.NaN, perSecond, mibPerSecond };
}

/** @param {string} domain @returns {Promise<number | undefined>} microseconds there and back */
async function fabricPingPong(domain) {
  const args = ["-p", "verbs;ofi_rxm", "-e", "rdm", "-d", domain, "-I", "1000", "-S", "64"];
  const env = { ...process.env, FI_UNIVERSE_SIZE: "16" };
  const host = domain.startsWith("rxe") ? "10.77.1.1" : "10.77.2.1";
  const server = spawn("fi_pingpong", args, { env, stdio: "ignore" });
  server.on("error", () => {});
  try {
    await new Promise((resolve) => setTimeout(resolve, 1000));
    const { stdout } = await promisify(execFile)("fi_pingpong", [...args, host], { env, timeout: 30_000 });
    // bytes #sent #ack total time MB/sec usec/xfer Mxfers/sec; a transfer is one way.
    const line = stdout.split("\n").find((text) => /^64\s/.test(text));
    return line === undefined ? undefined : 2 * Number(line.trim().split(/\s+/)[6]);
  } catch (error) {
    console.log(String(/** @type {{ stderr?: string }} */ (error).stderr ?? error).slice(0, 300));
    return undefined;
  } finally {
    server.kill();
  }
}
