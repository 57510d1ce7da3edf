export type { NvmeDhGroup } from "./authentication/dh-groups.ts";
export { makeSecret, type NvmeHash } from "./authentication/secret.ts";
export {
  type BlockDevice,
  BlockDeviceError,
  type BlockDeviceErrorCode,
  type Extent,
  type ReservationStore,
  type WriteOptions,
  type WriteZeroesOptions,
} from "./device/block-device.ts";
export { type FileDevice, type FileDeviceOptions, openFileDevice } from "./device/file-device.ts";
export { type LosesPowerOptions, type LosingDevice, losesPower } from "./device/loses-power.ts";
export { type DeviceOptions, memoryDevice, nullDevice } from "./device/memory-device.ts";
export type { DiscoveredSubsystem } from "./host/discovery.ts";
export {
  type NvmeAddress,
  type NvmeConnectionOptions,
  type NvmeEngineAddress,
  NvmeHost,
  type NvmeHostOptions,
  type NvmeHostStats,
  type NvmePath,
  type NvmePathStats,
} from "./host/nvme-host.ts";
export type { NvmeNamespace, NvmeOperationOptions } from "./host/nvme-namespace.ts";
export { type NbdOptions, type NbdServer, type NbdStats, serveNbd } from "./nbd/nbd-server.ts";
export type { NbdTlsOptions } from "./nbd/tls-upgrade.ts";
export type { NvmeAccess } from "./nvme/access.ts";
export type { NvmeAdmittedHost } from "./nvme/admitted-hosts.ts";
export {
  type NvmeAdvertisedAddress,
  type NvmeNamespaceStats,
  type NvmeSubsystem,
  NvmeTarget,
  type NvmeTargetBase,
  type NvmeTargetOptions,
  type NvmeTargetStats,
} from "./nvme/target.ts";
export type { NvmeRdmaOptions } from "./rdma/rdma-server.ts";
export type { ConnectionCounts, ConnectionLimits } from "./socket/connection-bounds.ts";
export type { RateCounts, RateLimits } from "./socket/pace.ts";
export type { NvmeHostTls } from "./tls/host-side.ts";
export { makeTlsKey } from "./tls/key.ts";
export type { NvmeTargetTls } from "./tls/target-side.ts";
