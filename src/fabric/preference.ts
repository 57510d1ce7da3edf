import type { Scheme } from "./libfabric/url.ts";

/** Fastest first: within this process, within this host, then the network. Other fabrics come last. */
const preferred: readonly Scheme[] = ["mem", "shm", "verbs", "tcp", "net+unix", "net+pipe", "net"];

/** The URLs of one engine, the fastest transport first. URLs of one scheme keep their order. */
export function fastestFirst(urls: readonly string[]): string[] {
  return [...urls].sort((a, b) => rank(a) - rank(b));
}

function rank(url: string): number {
  const index = preferred.indexOf(url.slice(0, url.indexOf("://")) as Scheme);
  return index < 0 ? preferred.length : index;
}
