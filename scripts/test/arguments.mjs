/**
 * @typedef {import("./stages.mjs").Stage} Stage
 *
 * @typedef {object} Arguments
 * @property {readonly Stage[]} stages those of `--only`, or all
 * @property {boolean} isChoice whether `--only` names them
 * @property {readonly string[]} paths
 * @property {boolean} list
 * @property {boolean} help
 * @property {boolean} resume
 * @property {string} [changed] the revision of `--changed`, or an empty text
 * @property {string} [turn] a commit's hash
 * @property {number} [minutes]
 */

/** What is wrong with the command line, in a sentence. */
export class UsageError extends Error {}

/**
 * @param {readonly string[]} args
 * @param {readonly Stage[]} stages
 * @param {readonly string[]} known the options of this command
 * @returns {Arguments}
 */
export function readArguments(args, stages, known) {
  /** @type {string[]} */
  const only = [];
  /** @type {string[]} */
  const paths = [];
  /** @type {Arguments} */
  const result = { stages, isChoice: false, paths, list: false, help: false, resume: false };
  const rest = [...args];
  /** @param {string} option @param {string | undefined} given */
  const value = (option, given) => {
    const text = given ?? rest.shift();
    if (text === undefined || text === "") throw new UsageError(`${option} takes a value`);
    return text;
  };
  for (let argument = rest.shift(); argument !== undefined; argument = rest.shift()) {
    const [option = "", given] = argument.startsWith("--") ? split(argument) : [argument];
    if (!option.startsWith("-")) paths.push(option);
    else if (option === "--help") result.help = true;
    else if (!known.includes(option)) throw new UsageError(`Unknown option ${option}`);
    else if (option === "--list") result.list = true;
    else if (option === "--resume") result.resume = true;
    else if (option === "--changed") result.changed = given ?? "";
    else if (option === "--only") only.push(...value(option, given).split(","));
    else if (option === "--turn") result.turn = value(option, given);
    else if (option === "--minutes") result.minutes = Number(value(option, given));
  }
  if (result.turn !== undefined && !/^[0-9a-f]{8,}$/.test(result.turn))
    throw new UsageError("--turn takes a commit's hash");
  if (result.minutes !== undefined && !(result.minutes > 0))
    throw new UsageError("--minutes takes a number above zero");
  if (only.length > 0) {
    const unknown = only.filter((name) => !stages.some((stage) => isOf(stage, name)));
    if (unknown.length > 0) throw new UsageError(`No such stage: ${unknown.join(", ")}`);
    result.stages = stages.filter((stage) => only.some((name) => isOf(stage, name)));
    result.isChoice = true;
  }
  return result;
}

/**
 * Whether a name means the stage: its own, or that of its group, as "rdma" for "rdma-bulk".
 *
 * @param {Stage} stage
 * @param {string} name
 */
function isOf(stage, name) {
  return stage.name === name || stage.name.startsWith(`${name}-`);
}

/** @param {string} argument "--option=value" */
function split(argument) {
  const at = argument.indexOf("=");
  return at < 0 ? [argument] : [argument.slice(0, at), argument.slice(at + 1)];
}
