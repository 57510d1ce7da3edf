import { execFileSync } from "node:child_process";
import { expect, it } from "vitest";

const thread = new URL("../dist/authentication/dh-thread.js", import.meta.url);
const groups = new URL("../dist/authentication/dh-groups.js", import.meta.url);

// The flag makes every text a module, and threads inherit flags.
it("computes in a process whose program comes from the command line as a module", () => {
  const program = `
    import { dhThread } from "${thread}";
    import { primeOf } from "${groups}";
    const { power } = await dhThread.compute("host", { prime: primeOf("ffdhe2048") });
    console.log(power.length > 0);`;
  expect(execFileSync(process.execPath, ["--input-type=module", "-e", program], { encoding: "utf8" })).toBe(
    "true\n",
  );
});

it("fails each exchange, and blocks none, where no thread may start", () => {
  const program = `
    import { dhThread } from "${thread}";
    for (const host of ["one", "two"])
      await dhThread.compute(host, { prime: Buffer.alloc(1) }).catch(({ message }) => console.log(message.length > 0));`;
  const flags = [process.version < "v23" ? "--experimental-permission" : "--permission", "--allow-fs-read=*"];
  const args = [...flags, "--no-warnings", "--input-type=module", "-e", program];
  expect(execFileSync(process.execPath, args, { encoding: "utf8" })).toBe("true\ntrue\n");
});
