// A machine that runs might use: its devices, what they compute and hold, and the links between them.
//
// A machine file (configs/machines/*.toml) has the same names, in tables: docs/choosing.md is its reference. All rates
// are per second and per device, of one direction of a link; all sizes are bytes. A machine that is measured
// (`lockstep bench machine`) and one that is written from data sheets are the same kind of file: `source` says which.
#pragma once
#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// A link between devices. A message of n bytes takes latency + n / (bandwidth · efficiency).
struct MachineLink {
  double bandwidth = 1e9;         // that a device can send
  double latency = 1e-5;          // seconds of a message that has hardly a byte
  double collective_latency = 0;  // of each step of a collective that has hardly a byte; 0: as `latency`
  double efficiency = 1;          // of the bandwidth that collectives reach with large messages, both ways at once
  double pair_efficiency = 1;     // the same of one device that sends to one other, which sends nothing
  double both_ways = 1;           // of the rate of a pair that each keeps while both send to each other
  bool operator==(const MachineLink&) const = default;
};

// The kinds of kernels whose time is that of their bytes (tensor/meta/kernel.h has all kinds). Products and attention
// are priced by their operations.
inline constexpr std::array<std::string_view, 12> kCopyLikeKernels = {
    "norm",      "activation", "rope",      "embedding", "cross_entropy", "elementwise",
    "optimizer", "sum",        "code_bf16", "code_int8", "code_onebit",   "top_k"};

struct MachineSpec {
  enum class Kind : std::uint8_t {
    devices,  // every rank has a device of its own, and messages move beside its work
    threads,  // ranks are threads that share the cores of a node and move their messages themselves
  };
  // Operations per second of dense products, as the maker states them, or as measured at the best shape.
  struct Peaks {
    double fp64 = 0, fp32 = 0, bf16 = 0, fp16 = 0, fp8 = 0;  // 0: it has none
    bool operator==(const Peaks&) const = default;
  };
  // A product of (M, K) and (K, N) reaches  best · M/(M+half_m) · N/(N+half_n) · K/(K+half_k)  of the peak.
  struct Products {
    double best = 0.8;
    double half_m = 0, half_n = 0, half_k = 0;
    double share(double m, double n, double k) const {
      return best * m / (m + half_m) * n / (n + half_n) * k / (k + half_k);
    }
    bool operator==(const Products&) const = default;
  };
  struct Attention {  // of the peak, by operations of the pairs that see each other
    double forward = 0.5, backward = 0.4;
    double half_pairs = 0;  // tokens of a sample at which it reaches half of that
    double half_width = 0;  // a head's width at which it does: narrow heads have few operations per exponential
    // Bytes that pass through memory per query and key of a head, hidden pairs included, where scores are not kept on
    // the chip; 0: they are (FlashAttention and everything after it).
    double forward_scores = 0, backward_scores = 0;
    bool operator==(const Attention&) const = default;
  };
  // Bytes per second of a copy, read and written together, that touches this many bytes; between two points by the
  // logarithm of the size, beyond them as at the nearest.
  struct CopyRate {
    double size = 0, rate = 1e9;
    bool operator==(const CopyRate&) const = default;
  };

  std::string name;
  std::string source;  // in words: where the numbers are from
  Kind kind = Kind::devices;
  std::int64_t nodes = 1;
  std::int64_t devices_per_node = 1;  // of kind threads: cores
  std::int64_t memory = 0;            // of a device that a run may take; of kind threads, of a node
  Peaks peaks;
  Products products;
  Attention attention;
  std::vector<CopyRate> copies;           // by size, rising; at least one
  std::map<std::string, double> kernels;  // of kCopyLikeKernels, the share of the copy rate that it reaches; else 1
  double launch = 0;                      // seconds that every kernel takes beside its work
  double step = 0;                        // seconds of a step beside all kernels and messages
  double overlap_slowdown = 0;            // while a message of a device moves, its work takes 1 + this times as long

  MachineLink intra_node;        // NVLink, PCIe, or memory between threads: see `sum_rate`
  MachineLink inter_node;        // InfiniBand, Ethernet
  std::int64_t spine_nodes = 0;  // nodes that the network joins at full rate; 0: all of them
  double oversubscription = 1;   // of the links between such groups of nodes
  double sum_rate = 0;           // bytes read and written per second where messages are summed; 0: in the link's rate
  double copy_rate = 0;          // of kind threads: bytes read and written by a message that only copies

  std::int64_t host_memory = 0;  // per device
  double host_link = 0;          // to the host and back at once, each way
  double host_copy = 0;          // copy rate of the host's memory, per device
  double disk_read = 0, disk_write = 0;
  std::int64_t disk = 0;  // bytes, per device

  double hours_between_failures = 0;  // of one device; 0: none
  double restart_seconds = 0;         // from a failure to the first step of the restarted run

  double rate_of_copy(double size) const;  // of `copies`
  std::int64_t devices() const { return nodes * devices_per_node; }
  std::int64_t node_of(std::int64_t rank) const { return rank / devices_per_node; }
  bool operator==(const MachineSpec&) const = default;
};

std::string_view name_of(MachineSpec::Kind kind);

// Each throws UserError (usage), one line with a place and a remedy, for what is unknown, missing, of another type or
// out of range, and for a key that would do nothing.
MachineSpec read_machine(const std::filesystem::path& file);
// `where`: the file, as messages name it. Without a key `name` the machine is called that, less ".toml".
MachineSpec parse_machine(std::string_view toml, const std::string& where);
// One field, as in --set machine.inter_node.bandwidth=12.5GB/s (`key` without "machine.").
void set_machine_field(MachineSpec& machine, std::string_view key, std::string_view value);
// Several at once, each "inter_node.bandwidth=12.5GB/s": for fields of which one makes no sense before the other.
void set_machine_fields(MachineSpec& machine, std::span<const std::string> settings);
// What parse_machine reads: the same machine again.
std::string to_toml(const MachineSpec& machine);
// One that comes with Lockstep, by its name ("h100-sxm"), or a file by its path. The error names those that there are.
MachineSpec find_machine(const std::string& name_or_file);
// What find_machine takes from any folder: the name of one that comes with Lockstep, or a file's absolute path, from
// `base_folder` where it is relative. Nothing: it reads like a name, and there is neither such a machine nor such a
// file. What reads like a path (it has a '/', or ends in .toml) is not looked for.
std::optional<std::string> machine_place(const std::string& name_or_file, const std::filesystem::path& base_folder);
std::vector<std::string> shipped_machines();  // sorted

}  // namespace lockstep
