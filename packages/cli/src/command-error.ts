import { codeNumbers } from "cinnabar/options";
import { type RpcCode, RpcError } from "cinnabar/standard";

/** The exit status of a command with a failed call: 65 `cancelled` to 80 `unauthenticated`. */
export function statusOf(code: RpcCode): number {
  return 64 + codeNumbers[code];
}

/** Why a command cannot do its work: one line with the remedy, and the exit status. */
export class CommandError extends Error {
  override readonly name = "CommandError";
  readonly status: number;

  constructor(message: string, status = 1, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause });
    this.status = status;
  }
}

/** What an error comes to for the person at the terminal. What no command expects passes through, with its stack. */
export function commandError(error: unknown, where = ""): CommandError {
  if (error instanceof CommandError) return error;
  if (!(error instanceof RpcError)) throw error;
  const said = where === "" ? error.message : `${where}: ${error.message}`;
  const remedy = remedies.find(([code, text]) => code === error.code && text.test(error.plainMessage))?.[2];
  return new CommandError(remedy === undefined ? said : `${said}; ${remedy}`, statusOf(error.code), error);
}

export const giveCredentials = "give --cert, --key and --ca, or --psk, as the server asks";

/** What to do about refusals of engines. A handler may refuse with the same codes, and the options change nothing then. */
const remedies: readonly (readonly [RpcCode, RegExp, string])[] = [
  ["unauthenticated", / needs a peer that proves who it is$/, giveCredentials],
  ["unauthenticated", /does not prove the name /, "give a name that it proves by --name"],
  [
    "permission_denied",
    /^the caller is not permitted to call /,
    "let the server's security.allow permit it for this identity",
  ],
];

/** What is wrong with a server whose answer no engine gives. */
export const wrongAnswer = "its answer is none that an engine gives";
