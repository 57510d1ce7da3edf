import { withOurs } from "../bulk/ours.ts";
import type { RegistrationCosts } from "../bulk/parties/cinnabar-client.ts";
import { sizeKey } from "../bulk/settings.ts";
import type { Figure } from "../suite/figure.ts";
import { formatNumber, formatSize } from "../suite/format.ts";
import { loadAverage } from "../suite/machine.ts";
import type { Workload } from "../suite/workload.ts";

const KiB = 1024;
const MiB = 1024 * KiB;
const sizes = [64 * KiB, MiB, 16 * MiB, 256 * MiB];
/** Over a software device, longer ones keep the processor for longer than a heartbeat may be late. */
const mostBytesOverVerbs = 16 * MiB;
const keys = ["call", "region"] as const;

const kinds: readonly (readonly [keyof RegistrationCosts, string, string])[] = [
  ["moved", "moved", "all of it put into"],
  ["lent", "lent", "touched by nobody"],
];

export const bulkRegistration: Workload = {
  name: "bulk-registration",
  title: "Registration for calls",
  about:
    "How long a call takes that lends pooled memory again and again, one in flight: registered for each call (`keys: call`), or once for the region's life (`keys: region`). " +
    "Call by call in turn. The bytes that arrive are compared, and the registrations counted. " +
    "What calls that nobody moves bytes for take longer by is the registration: it stands beside moving the bytes once.",
  families: ["registration"],
  selection: "whole",
  seconds: 14,
  run: (run) =>
    withOurs(run, async (all) => {
      const figures: Figure[] = [];
      for (const bytes of sizes) {
        const ours = all.filter(({ subject }) => subject.key !== "verbs" || bytes <= mostBytesOverVerbs);
        const costs = ours.map(() => [] as RegistrationCosts[]);
        for (let round = 1; round <= run.rounds; round++) {
          for (const [index, { driver, subject }] of ours.entries()) {
            const cost = await driver.ask("registrationCosts", bytes, run.roundMs / 2);
            costs[index]?.push(cost);
            const told = keys.map((key) => `${key} ${formatNumber(cost.moved[key])}`).join(", ");
            run.tell(`${formatSize(bytes)}, round ${round} of ${run.rounds}, µs, ${subject.title}: ${told}`);
          }
        }
        for (const [index, { subject }] of ours.entries()) {
          figures.push({
            name: `${subject.key}.registration.${sizeKey(bytes)}.register_us`,
            subject: subject.title,
            chart: "Registration and its end, by size",
            unit: "µs",
            better: "less",
            rounds: (costs[index] ?? []).map(({ lent }) => lent.call - lent.region),
            load: loadAverage(),
            at: { axis: "bytes", value: bytes },
          });
          for (const [kind, word, title] of kinds)
            for (const key of keys)
              figures.push({
                name: `${subject.key}.registration.${sizeKey(bytes)}.${word}.${key}_us`,
                subject: `${subject.title}, keys: ${key}`,
                chart: `A call that lends memory, ${title}, by size`,
                unit: "µs",
                better: "less",
                rounds: (costs[index] ?? []).map((cost) => cost[kind][key]),
                load: loadAverage(),
                at: { axis: "bytes", value: bytes },
              });
        }
      }
      return figures;
    }),
};
