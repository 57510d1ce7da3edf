import { expect, it } from "vitest";
import { expandHostlist, launchOf, seedsOf } from "./launch.ts";

/** Of `srun --nodes=4 --ntasks=8`, as its manual has the names. */
const srun = {
  SLURM_JOB_ID: "65541",
  SLURM_JOB_NODELIST: "node[008-011]",
  SLURM_STEP_ID: "0",
  SLURM_STEP_NODELIST: "node[008-011]",
  SLURM_STEP_NUM_TASKS: "8",
  SLURM_NTASKS: "8",
  SLURM_PROCID: "5",
  SLURM_LOCALID: "1",
  SLURM_NODEID: "2",
  SLURMD_NODENAME: "node010",
};

/** As `mpirun -np 3` of Open MPI 4.1.4 set it. */
const mpirun = {
  OMPI_COMMAND: "node",
  OMPI_COMM_WORLD_LOCAL_RANK: "1",
  OMPI_COMM_WORLD_LOCAL_SIZE: "3",
  OMPI_COMM_WORLD_NODE_RANK: "1",
  OMPI_COMM_WORLD_RANK: "1",
  OMPI_COMM_WORLD_SIZE: "3",
  OMPI_UNIVERSE_SIZE: "2",
  PMIX_NAMESPACE: "131661825",
  PMIX_RANK: "1",
};

/** As `mpiexec.hydra -n 3` of MPICH 4.0.2 set it. */
const hydra = {
  MPIR_CVAR_CH3_INTERFACE_HOSTNAME: "node1",
  MPI_LOCALNRANKS: "3",
  MPI_LOCALRANKID: "2",
  PMI_FD: "14",
  PMI_RANK: "2",
  PMI_SIZE: "3",
};

it("is read from the environment of srun", () => {
  const launch = launchOf(srun);
  expect(launch).toEqual({
    ...{ launcher: "slurm", rank: 5, size: 8, localRank: 1, host: "node010" },
    hosts: ["node008", "node009", "node010", "node011"],
  });
  expect(launch && seedsOf(launch, 7400)[0]).toBe("tcp://node008:7400");
  // A step on a part of the job's hosts.
  expect(launchOf({ ...srun, SLURM_STEP_NODELIST: "node010", SLURM_STEP_NUM_TASKS: "6" })).toMatchObject({
    ...{ size: 6, hosts: ["node010"] },
  });
});

it("is read from the environments of mpirun and mpiexec", () => {
  const nowhere = { host: undefined, hosts: undefined };
  expect(launchOf(mpirun)).toEqual({ launcher: "openmpi", rank: 1, size: 3, localRank: 1, ...nowhere });
  expect(launchOf(hydra)).toEqual({ launcher: "pmi", rank: 2, size: 3, localRank: 2, ...nowhere });
  const { MPI_LOCALRANKID: _, ...bare } = hydra;
  expect(launchOf(bare)?.localRank).toBeUndefined();
  expect(() => seedsOf(launchOf(mpirun) as never, 7400)).toThrow("openmpi does not name the hosts");
});

it("is of the launcher that has started this process, where one starts the other", () => {
  // Open MPI's daemons and Hydra's proxies are tasks of Slurm.
  const daemon = { ...srun, SLURM_PROCID: "0", SLURM_NTASKS: "4", SLURM_STEP_NUM_TASKS: "4" };
  expect(launchOf({ ...daemon, ...mpirun })).toMatchObject({ launcher: "openmpi", rank: 1, size: 3 });
  expect(launchOf({ ...daemon, ...hydra })).toMatchObject({ launcher: "pmi", rank: 2, size: 3 });
  // `srun --mpi=pmi2` sets both.
  expect(launchOf({ ...srun, PMI_RANK: "5", PMI_SIZE: "8" })).toMatchObject({ launcher: "slurm", rank: 5 });
});

it("is nothing for a process that was started alone, and for a batch script", () => {
  expect(launchOf({})).toBeUndefined();
  const { SLURM_STEP_ID: _, ...script } = { ...srun, SLURM_PROCID: "0" };
  expect(launchOf(script)).toBeUndefined();
});

it("names the variable that is wrong", () => {
  expect(() => launchOf({ ...hydra, PMI_RANK: "-1" })).toThrow("PMI_RANK must be a whole number, it is -1");
  expect(() => launchOf({ PMI_RANK: "1" })).toThrow("PMI_SIZE must be a whole number, it is missing");
  expect(() => launchOf({ ...mpirun, OMPI_COMM_WORLD_RANK: "3" })).toThrow(
    "OMPI_COMM_WORLD_RANK is 3, and OMPI_COMM_WORLD_SIZE is 3",
  );
  expect(() => launchOf({ ...srun, SLURM_STEP_NODELIST: "node[3-1]" })).toThrow("is no host list");
});

// As `scontrol show hostnames` of Slurm 22.05 prints them.
it.each([
  ["login", "login"],
  ["linux[1-3,6]", "linux1 linux2 linux3 linux6"],
  ["tux[0-3,12,20-22]", "tux0 tux1 tux2 tux3 tux12 tux20 tux21 tux22"],
  ["node[008-011],login", "node008 node009 node010 node011 login"],
  ["r[1-2]n[01-03]", "r1n01 r1n02 r1n03 r2n01 r2n02 r2n03"],
  ["a,b[3],c", "a b3 c"],
])("%s", (list, names) => {
  expect(expandHostlist(list).join(" ")).toBe(names);
});

it("has digits as the list has them, and parts at commas or spaces", () => {
  expect(expandHostlist("n[9-11] gpu-a[1]")).toEqual(["n9", "n10", "n11", "gpu-a1"]);
});

it.each(["", ",", "a[", "a]", "a[1-3", "a[]", "a[3-1]", "a[x]", "a[1-]", "a[123x456]", "[1[2]]"])(
  "is not %j",
  (list) => {
    expect(() => expandHostlist(list)).toThrow(RangeError);
  },
);

it.each(["a[1-999999999]", "a[0-999]b[0-999]", "a[0-40000],b[0-40000]"])("is not endless: %s", (list) => {
  expect(() => expandHostlist(list)).toThrow("more than 65536 names");
});
