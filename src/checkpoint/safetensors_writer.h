// Writes tensors as one safetensors file, whole or not at all.
//
// The bytes go to `path` + ".partial", which is synced to the disk and then renamed to `path`; the folder is synced
// last. A reader of `path` sees the old file or the new one, never half of one, even across a power cut.
//
// Tensors are stored widest element first, then by name, and the header is padded with blanks so that the data begins
// at a multiple of 64: every tensor is then aligned for its element type, and the bytes of a file depend on its content
// alone, not on the order of `tensors`.
//
// A tensor may be stored in another float type than it has: it is converted on the way (convert.h), a part at a time.
//
// Nothing is owned: the tensors' elements must stay unchanged during the call. Two threads may write at once, but not
// to one path.
//
// Failure: EnvironmentError with the call that failed and what the system said (a full disk, a missing folder, no
// permission); the partial file is removed and a file already at `path` is as it was. Only when the last step fails,
// the folder's sync, is the new file in place, though perhaps not yet durable. ProgramError for what a caller should
// never ask: a tensor that is absent, or out of reach, a name that is "__metadata__", comes twice or is not UTF-8.
#pragma once
#include <filesystem>
#include <optional>
#include <span>
#include <string>

#include "checkpoint/disk.h"
#include "checkpoint/safetensors_index.h"
#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace lockstep {

struct NamedTensor {
  std::string name;
  ConstTensor tensor;
  std::optional<DType> stored = std::nullopt;  // the element type in the file; none: the tensor's own
  std::optional<Shape> shape = std::nullopt;   // that the file says, also of strided rows; none: the tensor's own
};

WrittenFile write_safetensors(const std::filesystem::path& path, std::span<const NamedTensor> tensors,
                              const SafetensorsMetadata& metadata = {}, const Disk& disk = Disk());

// The same bytes into a file that somebody else creates, syncs and puts in place: a folder that becomes visible whole.
// With a stream, tensors may also be elsewhere (element_parts.h).
void write_safetensors(DiskFile& file, std::span<const NamedTensor> tensors, const SafetensorsMetadata& metadata = {},
                       Stream* stream = nullptr);

}  // namespace lockstep
