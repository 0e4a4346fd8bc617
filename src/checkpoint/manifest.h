// The manifest: what a checkpoint holds, which slices of which tensors in which file, and the checksum of every file.
//
// A JSON object on one line (docs/formats.md, "Checkpoints"):
//   {"xxh3":"<16 hex digits>","format":"lockstep checkpoint","version":1, 2, 3, 4 or 5,
//    "progress":{"step","updates","samples","seed","data_fingerprint","run_file",("loss_scale","loss_scale_steps"),
//                ("skipped","losses")},
//    "tensors":[{"part","name","shape","dtype","slices":[{"file","entry","begin","end",("row","pitch")}]}],
//    "files":[{"name","bytes","xxh3"}],("companions":[{"name","bytes","xxh3"}])}
// The first field is the checksum of every byte after it, so damage to the manifest is noticed like damage to a file.
// Version 2 has slices of strided rows (rows.h), version 3 also has companions, files "hf-NAME" that came with the
// model (hf_companions.h), version 4 also the loss scale of an fp16 run, a power of two. Version 5 has what a run
// needs that leaves out the batches of loss spikes, beside a loss scale or without one. A manifest is written in the
// lowest version that can express it.
//
// parse_manifest is a pure function of the text. Its result is consistent: parts, names and files are known once;
// shapes and counts fit 63 bits; the slices of each tensor are in order and cover it exactly, flat or strided, and
// strided ones have one pitch; every slice is in a file of the list, under an entry of its own; and every file name is
// plain (disk.h), so that none leads out of the folder. The reader finds out whether the files are there and agree
// (checkpoint_reader.h).
//
// Failure: UserError (checkpoint), one line: `where`, the field, the reason, a remedy.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/rows.h"
#include "checkpoint/state.h"

namespace lockstep {

inline constexpr const char* kManifestName = "manifest.json";
inline constexpr int kManifestVersion = 5;  // the newest
inline constexpr std::size_t kMaxManifestBytes = 64 << 20;
inline constexpr std::size_t kMaxRunFileBytes = 1 << 20;
inline constexpr std::size_t kMaxSkippedBatches = 1000, kMaxKeptLosses = 100;

struct ManifestSlice {
  std::string file, entry;
  StridedRange range;  // of the tensor's elements, joined where nothing is between its rows
  bool operator==(const ManifestSlice&) const = default;
};

struct ManifestTensor {
  std::string part, name;
  std::vector<std::int64_t> shape;
  DType dtype = DType::f32;
  std::vector<ManifestSlice> slices;  // by `begin`
  bool operator==(const ManifestTensor&) const = default;
};

struct ManifestFile {
  std::string name;
  std::int64_t bytes = 0;
  std::uint64_t checksum = 0;
  bool operator==(const ManifestFile&) const = default;
};

struct Manifest {
  Progress progress;
  std::vector<ManifestTensor> tensors;
  std::vector<ManifestFile> files;       // of tensors
  std::vector<ManifestFile> companions;  // of a Hugging Face folder, under their kept names
  const ManifestTensor* find(std::string_view part, std::string_view name) const;  // null when there is none
  bool operator==(const Manifest&) const = default;
};

std::string manifest_text(const Manifest& manifest);
Manifest parse_manifest(std::string_view text, const std::string& where);

// Puts the sum into a JSON object that lacks it; what manifest_text ends with. For tests that forge manifests.
std::string seal_manifest(std::string_view object);

}  // namespace lockstep
