// Reads checkpoints: finds the newest whole one, verifies it, and loads any slice of it into any layout.
//
// Opening verifies everything: the manifest (manifest.h); that every file is there with its size and checksum and is
// sound safetensors (safetensors_index.h); and that it holds every slice under its entry with the type and size the
// manifest says. It reads every byte once. What is opened stays mapped; the files must not be shortened meanwhile. When
// ranks load together, one verifies and the others open what it has verified: they read the manifest, and of the files
// only what they load.
//
// load() fills any piece of a logical tensor, a flat range or strided rows, from whatever pieces were saved, and reads
// only their bytes again. Only the part "weight" may be loaded in another float type (convert.h): moments in another
// type would be another run.
//
// Failure: UserError (checkpoint), one line with the file and the place, or the tensor.
// Thread safety: const members may be called from any thread at once, each with its own stream.
#pragma once
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "checkpoint/manifest.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/state.h"
#include "tensor/stream.h"

namespace lockstep {

class Checkpoint {
 public:
  const std::filesystem::path& path() const { return path_; }
  const Progress& progress() const { return manifest_.progress; }
  const Manifest& manifest() const { return manifest_; }

  // Fills each tensor's `live`, which is on the stream's device. Tensors of the checkpoint nobody asks for are left.
  // UserError when one is missing, has another shape, or has another type in a part where that is refused; then some
  // tensors may be filled already.
  void load(std::span<const StateTensor> tensors, Stream& stream) const;

 private:
  friend Checkpoint open_checkpoint(const std::filesystem::path& path);
  friend Checkpoint open_verified_checkpoint(const std::filesystem::path& path);
  Checkpoint() = default;

  std::filesystem::path path_;
  Manifest manifest_;
  using Files = std::map<std::string, std::unique_ptr<SafetensorsFile>, std::less<>>;
  const SafetensorsFile& file_with(const ManifestTensor& tensor, const ManifestSlice& slice, Files& opened) const;
  void fill(const Tensor& live, const StridedRange& rows, const ManifestTensor& saved, Files& opened,
            Stream& stream) const;

  Files files_;  // all of them, or none: then those that are needed are opened by each load
  std::map<std::pair<std::string_view, std::string_view>, const ManifestTensor*> tensors_;  // by part and name
};

// Verifies and opens one checkpoint: the path of a step-… folder, or of a copy of one under any name.
Checkpoint open_checkpoint(const std::filesystem::path& path);
// Opens one that was verified a moment ago, by another rank.
Checkpoint open_verified_checkpoint(const std::filesystem::path& path);

// Called for every checkpoint that is not whole, with the reason in one line.
using DamageReport = std::function<void(const std::filesystem::path& checkpoint, const std::string& reason)>;

// Of a folder of checkpoints (checkpoint_folder.h), the one `latest` names, or, when that is damaged, the one of the
// highest step that is whole. Nothing when there is none. EnvironmentError when the folder cannot be listed.
std::optional<Checkpoint> open_newest_whole(const std::filesystem::path& folder, const DamageReport& report = {});

}  // namespace lockstep
