/** A verbs device that tests may use. */
export interface VerbsDevice {
  readonly name: string;
  /** Its IPv4 address. Another verbs device of this machine must reach it. */
  readonly host: string;
}

/**
 * What the environment lends to the tests: `CINNABAR_TEST_VERBS="rxe=10.77.1.1 siw=10.77.2.1"`. The guest of `npm run
 * test:rdma` has these two; on a machine with RDMA hardware, name its own. Without it the tests use no verbs device,
 * even where there is one.
 */
export const verbsDevices: readonly VerbsDevice[] = (process.env.CINNABAR_TEST_VERBS ?? "")
  .split(" ")
  .filter((entry) => entry !== "")
  .map((entry) => {
    const match = /^([a-z0-9]+)=(\d+\.\d+\.\d+\.\d+)$/.exec(entry);
    if (match === null) throw new Error(`CINNABAR_TEST_VERBS: expected name=address, got "${entry}"`);
    return { name: match[1] as string, host: match[2] as string };
  });
