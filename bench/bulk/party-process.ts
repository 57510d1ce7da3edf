// One party as a process of its own: `party-process.js MODULE TRANSPORT [ADDRESS]`, started by remote-party.ts and ended with it.
import type { PartyModule } from "./party.ts";

interface Question {
  readonly id: number;
  readonly method: string;
  readonly args: readonly unknown[];
}

const [name = "", transport = "", address = ""] = process.argv.slice(2);
const module = (await import(new URL(`./parties/${name}.js`, import.meta.url).href)) as PartyModule;
const party = await module.open(transport, address);
const methods = party as unknown as Record<string, (...args: readonly unknown[]) => Promise<unknown>>;

process.once("disconnect", () => void party.close().finally(() => process.exit()));
process.on("message", async ({ id, method, args }: Question) => {
  try {
    process.send?.({ id, value: await methods[method]?.(...args) });
  } catch (error) {
    process.send?.({ id, error: error instanceof Error ? (error.stack ?? error.message) : String(error) });
  }
});
process.send?.({ id: 0, value: party.address ?? "" });
