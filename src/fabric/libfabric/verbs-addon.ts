/** The addon's functions for RDMA devices, beside their ports. */
export interface VerbsAddon {
  /**
   * Dumps what the kernel's RDMA subsystem has (RDMA_NLDEV_CMD_…), of one device or of all: its netlink messages in a
   * row, or a negated error number.
   */
  askRdma(command: number, device?: number): Uint8Array | number;
}
