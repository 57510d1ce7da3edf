// One party as a process of its own: `child-process.js MODULE`, started by child.ts and ended with it.
import type { Party } from "./child.ts";

interface Question {
  readonly id: number;
  readonly method: string;
  readonly args: readonly unknown[];
}

/** What is left when `close` does not come back. */
const graceMs = 5_000;

let party: Party | undefined;

// Ctrl-C reaches the whole group. The parent decides when this process ends.
process.on("SIGINT", () => {});
process.once("disconnect", () => {
  setTimeout(() => process.exit(1), graceMs).unref();
  void Promise.resolve(party?.close()).finally(() => process.exit());
});
process.on("message", async ({ id, method, args }: Question) => {
  try {
    process.send?.({ id, value: await answer(method, args) });
  } catch (error) {
    process.send?.({ id, error: error instanceof Error ? (error.stack ?? error.message) : String(error) });
  }
});

async function answer(method: string, args: readonly unknown[]): Promise<unknown> {
  if (method === "open") {
    const module = (await import(process.argv[2] ?? "")) as {
      open(...args: readonly unknown[]): Promise<Party>;
    };
    party = await module.open(...args);
    return;
  }
  const methods = party as unknown as Record<string, (...args: readonly unknown[]) => Promise<unknown>>;
  if (methods[method] === undefined) throw new Error(`there is no method ${method}`);
  return methods[method](...args);
}
