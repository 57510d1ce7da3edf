import { parseArgs } from "node:util";
import { argumentsOf } from "../arguments.ts";
import { type Command, UsageError } from "../command.ts";
import { commands } from "../commands.ts";
import { type ConnectionValues, connectionOptions, withEngine } from "../connection.ts";
import { listedServices } from "../remote-method.ts";
import { Terminal } from "../terminal.ts";

const help = `Usage: cinnabar completion bash|zsh|fish

Prints the completion of a shell: commands, options, and the methods of the
server whose URL stands before.

  bash  source <(cinnabar completion bash)
  zsh   cinnabar completion zsh > "\${fpath[1]}/_cinnabar"
  fish  cinnabar completion fish > ~/.config/fish/completions/cinnabar.fish

  --line TEXT  Prints what can follow a line that is being typed: the shells ask
               so.`;

const scripts: Readonly<Record<string, string>> = {
  bash: `_cinnabar() {
  local found at
  mapfile -t found < <(cinnabar completion --line "\${COMP_LINE:0:COMP_POINT}" 2>/dev/null)
  COMPREPLY=()
  for at in "\${!found[@]}"; do COMPREPLY+=("$(printf '%q' "\${found[at]}")"); done
}
complete -o default -F _cinnabar cinnabar`,
  zsh: `#compdef cinnabar
_cinnabar() {
  local -a found
  found=("\${(@f)$(cinnabar completion --line "\${(j: :)words[1,CURRENT]}" 2>/dev/null)}")
  if [[ -n $found[1] ]]; then compadd -- $found; else _files; fi
}
compdef _cinnabar cinnabar`,
  fish: `function __cinnabar_complete
  cinnabar completion --line (commandline -cp) 2>/dev/null
end
complete -c cinnabar -a '(__cinnabar_complete)'`,
};

/** What a contract allows: a service, `#` and an instance where it has one, and a method. */
const isName = (text: string): boolean =>
  /^[A-Za-z0-9._/-]{1,128}(#[A-Za-z0-9._-]{1,64})?(\/[A-Za-z_$][A-Za-z0-9_$]{0,127})?$/.test(text);

/** A server that does not answer must not hold up a shell for long. */
const longestWait = "2s";

/** `cinnabar completion`: scripts for shells, and what they ask. */
export const completion: Command = {
  help,
  async run(args, terminal) {
    const { values, positionals } = argumentsOf(args, { line: { type: "string" } });
    const [shell = "", ...more] = positionals;
    if (values.line !== undefined) {
      const found = await candidates(values.line);
      if (found.length > 0) terminal.print(found);
      return 0;
    }
    const script = Object.hasOwn(scripts, shell) && more.length === 0 ? scripts[shell] : undefined;
    if (script === undefined) throw new UsageError(`expected one of ${Object.keys(scripts).join(", ")}`);
    terminal.print(script.split("\n"));
    return 0;
  },
};

/** The completions of the last word of a line. */
async function candidates(line: string): Promise<readonly string[]> {
  const [, ...words] = line.trimStart().split(/\s+/);
  const typed = words.pop() ?? "";
  const fitting = (all: readonly string[]) => all.filter((each) => each.startsWith(typed));
  const [verb] = words;
  if (verb === undefined) return fitting(commands.map(({ name }) => name));
  const listed = commands.find(({ name }) => name === verb);
  if (listed === undefined) return [];
  const { help: text } = await listed.load();
  if (typed.startsWith("-")) return fitting([...new Set(text.match(/(?<![\w-])--[a-z][\w-]*/g))]);
  if (verb === "completion") return fitting(Object.keys(scripts));
  if (verb !== "call" && verb !== "describe") return [];
  const { values, names } = argumentsIn(words.slice(1), text);
  const [url, ...after] = names;
  if (url === undefined || after.length > 0) return [];
  return fitting(await namesOf(url, values, verb === "describe"));
}

/** The options and the names among words; the help lists the options that take a value. */
function argumentsIn(words: readonly string[], text: string): { values: ConnectionValues; names: string[] } {
  const options = Object.fromEntries(
    [...text.matchAll(/(?<![\w-])--([a-z][\w-]*)( [A-Z])?/g)].map(([, name = "", value]) => [
      name,
      { type: value === undefined ? ("boolean" as const) : ("string" as const) },
    ]),
  );
  const { values, positionals } = parseArgs({
    args: [...words],
    options,
    strict: false,
    allowPositionals: true,
  });
  const known = Object.keys(connectionOptions).filter((name) => typeof values[name] === "string");
  return { values: Object.fromEntries(known.map((name) => [name, values[name]])), names: positionals };
}

/** The methods of a server, and of `describe` its services. Empty if the server does not answer. */
async function namesOf(
  url: string,
  values: ConnectionValues,
  withServices: boolean,
): Promise<readonly string[]> {
  const found: string[] = [];
  // A failure is not for the shell, which shows it in the middle of a line.
  const silent = new Terminal({
    columns: Number.POSITIVE_INFINITY,
    print: () => {},
    complain: () => {},
    paint: (_, text) => text,
  });
  await withEngine("completion", { ...values, timeout: longestWait }, silent, async (connection) => {
    for (const { service, instance, methods } of await listedServices(
      await connection.dial(url),
      connection,
    )) {
      const served = instance === undefined ? service : `${service}#${instance}`;
      if (withServices) found.push(served);
      found.push(...methods.map(({ name }) => `${served}/${name}`));
    }
    // A server may send names that no contract can have, and the shell would insert them into a command line.
    for (let at = found.length - 1; at >= 0; at--) if (!isName(found[at] as string)) found.splice(at, 1);
    return 0;
  }).catch((error: unknown) => {
    if (!(error instanceof UsageError)) throw error;
  });
  return found;
}
