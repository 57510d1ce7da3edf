/** What blocks of 4 KiB go through. Those of `echo` have no disk: a call carries 4 KiB there and back. */
export interface BlockSubject {
  readonly key: string;
  readonly title: string;
  readonly device: "null" | "memory" | "file" | "echo";
}

export const blockBytes = 4096;
export const diskBytes = 256 * 1024 * 1024;
export const nqn = "nqn.2026-11.bench:disk";

const ways = [
  { key: "shm", title: "Cinnabar shm" },
  { key: "tcp", title: "Cinnabar tcp" },
  { key: "nvme-tcp", title: "NVMe/TCP" },
];

export const blockSubjects: readonly BlockSubject[] = [
  ...ways.map((way) => ({ ...way, device: "null" as const })),
  ...ways.map((way) => ({ ...way, device: "file" as const })),
  { key: "grpc-tcp", title: "grpc-js tcp", device: "echo" },
  { key: "net-tcp", title: "net tcp", device: "echo" },
];
