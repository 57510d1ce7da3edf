import { execFileSync } from "node:child_process";
import type { Figure } from "../gates/figure.ts";
import { watch } from "./time-gates.ts";

const percent = 5;

/** L7: the network loses packets. It changes the loopback device, so it needs a network of its own. */
export async function lossyNetwork(seconds: number): Promise<Figure[]> {
  execFileSync("ip", ["link", "set", "lo", "up"]);
  execFileSync("tc", ["qdisc", "add", "dev", "lo", "root", "netem", "loss", `${percent}%`]);
  try {
    const spell = await watch(1000, seconds);
    const run = `${spell.run}, ${percent} % of packets lost`;
    return [
      { run, name: "% of packets that were lost", value: lost(), min: 0.8 * percent, max: 1.2 * percent },
      { run, name: "members declared dead", value: spell.dead, max: 0 },
      { run, name: "suspicions that members heard of", value: spell.suspicions },
      { run, name: "messages a member and period", value: spell.messages },
    ];
  } finally {
    execFileSync("tc", ["qdisc", "del", "dev", "lo", "root"]);
  }
}

function lost(): number {
  const shown = execFileSync("tc", ["-s", "qdisc", "show", "dev", "lo"], { encoding: "utf8" });
  const [, packets, dropped] = /netem[\s\S]*?Sent \d+ bytes (\d+) pkt \(dropped (\d+)/.exec(shown) ?? [];
  return (100 * Number(dropped)) / (Number(packets) + Number(dropped));
}
