import type { Workload } from "./workload.ts";

type Named = Pick<Workload, "name" | "families">;

/**
 * Looks for families that two workloads claim, before anything runs.
 *
 * @throws Error that names the family and both workloads.
 */
export function checkFamilies(workloads: readonly Named[]): void {
  const owners = new Map<string, string>();
  for (const { name, families } of workloads) {
    for (const family of families) {
      const owner = owners.get(family);
      if (owner !== undefined)
        throw new Error(`The workloads ${owner} and ${name} both claim figures "${family}"`);
      owners.set(family, name);
    }
  }
}

/**
 * Looks at the names of the figures that a workload brought.
 *
 * @throws Error when a name belongs to none of its families, or two figures have one name.
 */
export function checkNames({ name: workload, families }: Named, names: readonly string[]): void {
  const known = new Set<string>();
  for (const name of names) {
    const [first = "", second = ""] = name.split(".");
    if (!families.includes(first) && !families.includes(second))
      throw new Error(
        `The workload ${workload} has no figures called ${name}; its families: ${families.join(", ")}`,
      );
    if (known.has(name)) throw new Error(`The workload ${workload} has two figures called ${name}`);
    known.add(name);
  }
}
