import { FailureDetector } from "cinnabar-group";
import { afterAll, afterEach, expect, it, vi } from "vitest";
import type { DetectorEvent } from "../../packages/group/src/detector/events.ts";
import { resolveDetectorOptions } from "../../packages/group/src/detector/options.ts";
import { Roster } from "../../packages/group/src/detector/roster.ts";
import { EngineSecurity, readCredentials } from "../../packages/group/src/live/detector-security.ts";
import { Driver } from "../../packages/group/src/live/driver.ts";
import { openFabric } from "../../packages/group/src/live/fabric-transport.ts";
import { Authority } from "./support/authority.ts";

const [ca, other] = [Authority.create("members"), Authority.create("others")];
const network = `127.${1 + (process.pid % 250)}.${Math.floor(Math.random() * 250)}`;
const hosts = [1, 2, 3].map((place) => `${network}.${place}`);
const roster = new Roster(hosts.map((host, id) => ({ id, addresses: [`tcp://${host}:7946`] })));
const running: Driver[] = [];
const soon = { timeout: 60_000, interval: 10 };

afterEach(async () => {
  await Promise.all(running.splice(0).map((driver) => driver.close()));
});
afterAll(() => {
  ca.remove();
  other.remove();
});

const certificate = (authority: Authority, id: number) => ({
  ...authority.issue(`member-${id}`, { names: `DNS:member-${id}.example,IP:${hosts[id]}` }),
  ca: authority.cert,
});

async function start(self: number, tls?: ReturnType<typeof certificate>) {
  const events: DetectorEvent[] = [];
  const security = tls && new EngineSecurity(readCredentials({ tls }));
  const detector = resolveDetectorOptions({ periodMs: 100, suspicionFactor: 1, suspicionMaxFactor: 1 });
  const driver = await Driver.start(
    { self, roster, detector, group: 1, onEvent: (event) => events.push(event) },
    openFabric({ packetTimeoutMs: 5000, ...(security && { security: security.options }) }),
  );
  running.push(driver);
  return { driver, events, security };
}

/** Whether somebody has believed that of a member. */
const believes = (events: readonly DetectorEvent[], member: number, status: string) =>
  events.some((event) => event.type === "status" && event.member === member && event.status === status);

/** Whether somebody hears nobody, by the last event of this kind. */
const isIsolated = (events: readonly DetectorEvent[]) =>
  events.flatMap((event) => (event.type === "isolated" ? [event.isolated] : [])).at(-1) === true;

it("members hear each other and no strangers, and nobody of an authority that is not trusted any more", async () => {
  const [first, second] = [await start(0, certificate(ca, 0)), await start(1, certificate(ca, 1))];
  const stranger = await start(2);
  await vi.waitFor(() => {
    expect(first.driver.stats.received).toBeGreaterThan(5);
    expect(second.driver.stats.received).toBeGreaterThan(5);
  }, soon);
  await vi.waitFor(() => expect(believes(first.events, 2, "dead")).toBe(true), soon);
  expect(stranger.driver.stats.received).toBe(0);
  const whyLost = ({ driver }: { driver: Driver }, why: string) =>
    vi.waitFor(() => expect(driver.stats.lastSendError).toContain(why), soon);
  await whyLost(stranger, "takes sealed sessions only");

  // On a busy machine it may hear nobody for a moment.
  await vi.waitFor(() => expect(isIsolated(first.events)).toBe(false), soon);
  first.security?.replace(readCredentials({ tls: certificate(other, 0) }), () =>
    first.driver.reloadSecurity(),
  );
  await vi.waitFor(() => expect(isIsolated(first.events)).toBe(true), soon);
  await whyLost(first, "has not proven who it is");
});

it("a detector's thread gets certificates that are read again, and keeps the former ones where these cannot be used", async () => {
  let pem = certificate(ca, 2);
  const tls = { cert: vi.fn(() => pem.cert), key: () => pem.key, ca: () => pem.ca };
  const members = [{ id: 0, address: `tcp://${hosts[2]}:7947` }];
  const options = { group: "reloaded", self: 0, members };
  await using detector = await FailureDetector.open({ ...options, security: { tls } });
  expect(tls.cert).toHaveBeenCalledTimes(1);
  pem = certificate(other, 2);
  await detector.reloadSecurity();
  pem = { ...pem, cert: "no certificate" };
  await expect(detector.reloadSecurity()).rejects.toThrow(
    "failure detector: the new certificates cannot be used",
  );
  expect(tls.cert).toHaveBeenCalledTimes(3);
  expect(await detector.stats()).toMatchObject({ sendErrors: 0 });

  const plain = { ...options, members: [{ id: 0, address: `tcp://${hosts[1]}:7947` }] };
  await using without = await FailureDetector.open(plain);
  await expect(without.reloadSecurity()).rejects.toThrow("it has no security.tls");
});
