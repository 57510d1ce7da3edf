import { execFile } from "node:child_process";
import { chmodSync, existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Engine, implement } from "cinnabar";
import { Reflection, reflection } from "cinnabar-inspect";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { program } from "./support/command-line.ts";
import { servedFiles } from "./support/files-service.ts";

let folder: string;
let engine: Engine;
let url: string;
/** A server whose names a shell would run, beside one that a shell would only expand. */
let hostile: { readonly engine: Engine; readonly url: string };

const method = (name: string) => ({
  ...{ name, kind: "unary", idempotent: true, replay: false, priority: "normal" },
});

async function openHostile() {
  const lies = implement(Reflection, {
    list: () => [
      { service: "files.v1", methods: ["go;touch$IFS'owned';", "$(touch owned)", "$HOME"].map(method) },
    ],
    describe: ({ service: name }) => ({ service: name, methods: [] }),
  });
  const opened = await Engine.open({ listen: "net://127.0.0.1:0", serve: [lies] });
  return { engine: opened, url: opened.urls[0] as string };
}

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "cinnabar-completion-"));
  const command = join(folder, "cinnabar");
  writeFileSync(command, `#!/bin/sh\nexec '${process.execPath}' '${program}' "$@"\n`);
  chmodSync(command, 0o755);
  engine = await Engine.open({
    listen: "net://127.0.0.1:0",
    serve: (opening) => [servedFiles().files, reflection(opening)],
  });
  url = engine.urls[0] as string;
  hostile = await openHostile();
});

afterAll(async () => {
  await engine.close();
  await hostile.engine.close();
  rmSync(folder, { recursive: true });
});

/** What a shell prints that runs a script. The command is in its path. */
function shell(name: string, script: string): Promise<string> {
  const env = { ...process.env, NODE_OPTIONS: "", HOME: folder, PATH: `${folder}:${process.env.PATH}` };
  return new Promise((resolve, reject) =>
    execFile(name, ["-c", script], { env, cwd: folder }, (error, stdout, stderr) =>
      error === null ? resolve(stdout) : reject(new Error(stderr)),
    ),
  );
}

for (const name of ["zsh", "fish"])
  if (!existsSync(`/usr/bin/${name}`)) console.warn(`completion of ${name} is not tested: install ${name}`);

// Each takes the script as its user does.
describe("completion in a shell", () => {
  it("bash", async () => {
    const line = `cinnabar call ${url} files.v1/st`;
    const script = `source <(cinnabar completion bash)
COMP_LINE='${line}'; COMP_POINT=\${#COMP_LINE}; _cinnabar; printf '%s\\n' "\${COMPREPLY[@]}"`;
    expect(await shell("bash", script)).toBe("files.v1/stat\n");
  });

  it("bash inserts a name of a hostile server so that it is only a name", async () => {
    const line = `cinnabar call ${hostile.url} files`;
    const script = `source <(cinnabar completion bash)
COMP_LINE='${line}'; COMP_POINT=\${#COMP_LINE}; _cinnabar
printf '%s\\n' "\${COMPREPLY[@]}"; eval "printf '%s\\n' \${COMPREPLY[*]}"`;
    expect(await shell("bash", script)).toBe("files.v1/\\$HOME\nfiles.v1/$HOME\n");
    expect(existsSync(join(folder, "owned"))).toBe(false);
  });

  it.runIf(existsSync("/usr/bin/zsh"))("zsh", async () => {
    const script = `compdef() { }; compadd() { shift; print -l -- $@ }
source <(cinnabar completion zsh); words=(cinnabar call '${url}' files.v1/st); CURRENT=4; _cinnabar`;
    expect(await shell("zsh", script)).toBe("files.v1/stat\n");
  });

  it.runIf(existsSync("/usr/bin/fish"))("fish", async () => {
    const script = `cinnabar completion fish | source; complete -C 'cinnabar call ${url} files.v1/st'`;
    expect(await shell("fish", script)).toBe("files.v1/stat\n");
  });

  it.runIf(existsSync("/usr/bin/zsh"))("zsh has no other name of a hostile server", async () => {
    const script = `compdef() { }; compadd() { shift; print -lr -- $@ }
source <(cinnabar completion zsh); words=(cinnabar call '${hostile.url}' files); CURRENT=4; _cinnabar`;
    expect(await shell("zsh", script)).toBe("files.v1/$HOME\n");
    expect(existsSync(join(folder, "owned"))).toBe(false);
  });

  it.runIf(existsSync("/usr/bin/fish"))("fish has no other name of a hostile server", async () => {
    const script = `cinnabar completion fish | source; complete -C 'cinnabar call ${hostile.url} files'`;
    expect(await shell("fish", script)).toBe("files.v1/$HOME\n");
    expect(existsSync(join(folder, "owned"))).toBe(false);
  });
});
