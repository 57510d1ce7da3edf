/** What the program that started this process says of it. Plain data. */
export interface Launch {
  /** `slurm`: `srun`. `openmpi`: `mpirun` of Open MPI. `pmi`: Hydra's `mpiexec` (MPICH, Intel MPI), and others. */
  readonly launcher: "slurm" | "openmpi" | "pmi";
  /** The rank of this process, from 0. */
  readonly rank: number;
  /** How many processes were started together. */
  readonly size: number;
  /** Its rank among those on this host; undefined where the launcher does not give it. */
  readonly localRank: number | undefined;
  /** The name of this host as `hosts` has it: Slurm. */
  readonly host: string | undefined;
  /** The hosts of all processes, in the order of the job: Slurm. The first one has rank 0. */
  readonly hosts: readonly string[] | undefined;
}

type Environment = Readonly<Record<string, string | undefined>>;

/**
 * Reads rank and size of this process from the environment of `srun`, `mpirun` or `mpiexec`; undefined without a
 * launcher. If one launcher starts the other, the one that has started this process counts.
 *
 * @throws RangeError for values that contradict each other, or are not numbers
 *
 * @example
 * const launch = launchOf();
 * if (launch === undefined) throw new Error("start this program by srun or mpirun");
 * const group = await joinGroup("store", { engine, authority, rank: launch.rank });
 */
export function launchOf(env: Environment = process.env): Launch | undefined {
  const slurm = slurmOf(env);
  if (env.OMPI_COMM_WORLD_RANK !== undefined) {
    const numbers = numbersOf(env, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", [
      "OMPI_COMM_WORLD_LOCAL_RANK",
    ]);
    return { launcher: "openmpi", ...numbers, host: undefined, hosts: undefined };
  }
  if (env.PMI_RANK !== undefined) {
    const numbers = numbersOf(env, "PMI_RANK", "PMI_SIZE", ["MPI_LOCALRANKID", "PMI_LOCAL_RANK"]);
    // Of `srun --mpi=pmi2`. Where Hydra uses srun for its proxies, Slurm's numbers are those of the proxies.
    if (slurm?.rank === numbers.rank && slurm.size === numbers.size) return slurm;
    return { launcher: "pmi", ...numbers, host: undefined, hosts: undefined };
  }
  return slurm;
}

/** Only what `srun` has started: a batch script has a rank, too, and no step. */
function slurmOf(env: Environment): Launch | undefined {
  if (env.SLURM_PROCID === undefined || (env.SLURM_STEP_ID ?? env.SLURM_STEPID) === undefined)
    return undefined;
  const size = env.SLURM_STEP_NUM_TASKS === undefined ? "SLURM_NTASKS" : "SLURM_STEP_NUM_TASKS";
  const list = env.SLURM_STEP_NODELIST ?? env.SLURM_JOB_NODELIST;
  return {
    launcher: "slurm",
    ...numbersOf(env, "SLURM_PROCID", size, ["SLURM_LOCALID"]),
    host: env.SLURMD_NODENAME,
    hosts: list === undefined ? undefined : expandHostlist(list),
  };
}

function numbersOf(
  env: Environment,
  rankName: string,
  sizeName: string,
  localNames: readonly string[],
): Pick<Launch, "rank" | "size" | "localRank"> {
  const rank = numberIn(env, rankName);
  const size = numberIn(env, sizeName);
  if (rank >= size) throw new RangeError(`launchOf: ${rankName} is ${rank}, and ${sizeName} is ${size}`);
  const local = localNames.find((name) => env[name] !== undefined);
  return { rank, size, localRank: local === undefined ? undefined : numberIn(env, local) };
}

function numberIn(env: Environment, name: string): number {
  const text = env[name];
  if (text !== undefined && /^\d{1,9}$/.test(text)) return Number(text);
  throw new RangeError(`launchOf: ${name} must be a whole number, it is ${text ?? "missing"}`);
}

/**
 * Seeds for a coordinator where each host has a process that listens at this port. They are one URL for each host of
 * the job, that of rank 0 first.
 *
 * @throws RangeError where the launcher does not name the hosts: use a file, SRV records or etcd then
 */
export function seedsOf({ hosts, launcher }: Launch, port: number): string[] {
  if (hosts === undefined)
    throw new RangeError(`seedsOf: ${launcher} does not name the hosts; use a file, SRV records or etcd`);
  return hosts.map((host) => `tcp://${host}:${port}`);
}

/** The most names that one list may have: a range is written in a few characters. */
const mostNames = 65_536;

/**
 * The names in a host list of Slurm, in its order: "node[008-010,12],login" is node008, node009, node010, node12 and
 * login. `scontrol show hostnames` does the same.
 *
 * @throws RangeError for a malformed list, and for more than 65,536 names
 */
export function expandHostlist(list: string): string[] {
  const names = splitOutside(list).flatMap((part) => namesOf(part, list));
  if (names.length > mostNames) throw tooMany(list);
  return names;
}

/** At commas and spaces that are not between brackets. */
function splitOutside(list: string): string[] {
  const parts = list.match(/(?:[^,\s[\]]|\[[^\]]*\])+/g) ?? [];
  const separators = parts.reduce((rest, part) => rest.replace(part, ""), list);
  if (parts.length === 0 || /[^,\s]/.test(separators)) throw wrong(list);
  return parts;
}

/** Of "rack[1-2]n[01-03]": the ranges to the right turn fastest. */
function namesOf(part: string, list: string): string[] {
  const [, before = "", ranges, after = ""] = /^([^[]*)(?:\[([^\]]*)\](.*))?$/.exec(part) ?? [];
  if (ranges === undefined) return [part];
  const numbers = ranges.split(",").flatMap((range) => numbersIn(range, list));
  const rest = namesOf(after, list);
  if (numbers.length * rest.length > mostNames) throw tooMany(list);
  return numbers.flatMap((number) => rest.map((name) => `${before}${number}${name}`));
}

/** Of "008-010": as many digits as the first one has. */
function numbersIn(range: string, list: string): string[] {
  const [, first = "", last = first] = /^(\d{1,15})(?:-(\d{1,15}))?$/.exec(range) ?? [];
  const count = Number(last) - Number(first) + 1;
  if (first === "" || count < 1) throw wrong(list);
  if (count > mostNames) throw tooMany(list);
  return Array.from({ length: count }, (_, index) =>
    String(Number(first) + index).padStart(first.length, "0"),
  );
}

const wrong = (list: string): RangeError =>
  new RangeError(`expandHostlist: "${list}" is no host list, as "node[1-3,6],login"`);

const tooMany = (list: string): RangeError =>
  new RangeError(`expandHostlist: "${list}" has more than ${mostNames} names`);
