#include "checkpoint/checkpoint_reader.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <utility>

#include "base/checksum.h"
#include "base/error.h"
#include "base/mapped_file.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/convert.h"
#include "spec/text/text_input.h"
#include "tensor/transfer.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kVerifiedBytes = 8 << 20;  // at a time
constexpr std::int64_t kStagedBytes = 64 << 20;   // at a time; a longer row is staged whole

constexpr const char* kDamaged = "the checkpoint is damaged: use another one";

[[noreturn]] void refuse_checkpoint(const fs::path& file, const std::string& problem) {
  throw UserError(ExitCode::checkpoint, fmt::format("{}: {}", file.string(), problem), kDamaged);
}

// Readers of single files speak of bad input files; in here every such file is a checkpoint's.
template <class Body>
auto as_checkpoint(Body&& body) {
  try {
    return body();
  } catch (const UserError& error) {
    if (error.code() == ExitCode::checkpoint) throw;
    const std::string what = error.what();
    throw UserError(ExitCode::checkpoint, what.substr(0, what.rfind("; ")), kDamaged);
  }
}

Manifest read_manifest(const fs::path& path) {
  return as_checkpoint([&] {
    const MappedFile file(path);  // parse_manifest looks at the size before anything else
    return parse_manifest({reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()}, path.string());
  });
}

void verify_file(const fs::path& path, const ManifestFile& said) {
  as_checkpoint([&] {
    const MappedFile file(path);
    const std::span<const std::byte> bytes = file.bytes();
    if (std::ssize(bytes) != said.bytes)
      refuse_checkpoint(path, fmt::format("has {} bytes, the manifest says {}", bytes.size(), said.bytes));
    Checksum sum;
    for (std::int64_t at = 0; at < std::ssize(bytes); at += kVerifiedBytes) {
      const std::int64_t end = std::min(at + kVerifiedBytes, std::ssize(bytes));
      sum.update(bytes.subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(end - at)));
      file.forget(at, end);
    }
    if (sum.value() != said.checksum)
      refuse_checkpoint(path,
                        fmt::format("its checksum is {:016x}, the manifest says {:016x}", sum.value(), said.checksum));
  });
}

std::unique_ptr<SafetensorsFile> open_state_file(const fs::path& path, const ManifestFile& said) {
  verify_file(path, said);
  return as_checkpoint([&] { return std::make_unique<SafetensorsFile>(path); });
}

void check_slice(const SafetensorsFile& file, const ManifestTensor& tensor, const ManifestSlice& slice) {
  const SafetensorsEntry* entry = file.find(slice.entry);
  if (!entry)
    refuse_checkpoint(file.path(), fmt::format("has no tensor {}, which the manifest names", quote_text(slice.entry)));
  const std::int64_t elements = slice.range.elements(), bytes = elements * size_of(tensor.dtype);
  if (entry->dtype != safetensors_name(tensor.dtype) || entry->end - entry->begin != bytes ||
      entry->shape.size() > static_cast<std::size_t>(Shape::kMaxDims))
    refuse_checkpoint(file.path(),
                      fmt::format("byte {}: tensor {} is {} [{}], the manifest says {} of {} elements", entry->begin,
                                  quote_text(slice.entry), entry->dtype, fmt::join(entry->shape, ", "),
                                  safetensors_name(tensor.dtype), elements));
}

// The name `latest` holds, or nothing when there is no such file.
std::optional<std::string> read_latest(const fs::path& folder) {
  std::error_code ignored;
  const fs::path file = folder / kLatestName;
  if (!fs::exists(file, ignored)) return std::nullopt;
  std::string text = read_text_file(file, 256, ExitCode::checkpoint);
  if (text.ends_with('\n')) text.pop_back();
  if (!step_of_folder_name(text))
    refuse_checkpoint(file, fmt::format("says {}, not the name of a checkpoint", quote_text(text)));
  return text;
}

}  // namespace

Checkpoint open_verified_checkpoint(const fs::path& path) {
  Checkpoint checkpoint;
  checkpoint.path_ = path;
  checkpoint.manifest_ = read_manifest(path / kManifestName);
  for (const ManifestTensor& tensor : checkpoint.manifest_.tensors)
    checkpoint.tensors_.emplace(std::pair(std::string_view(tensor.part), std::string_view(tensor.name)), &tensor);
  return checkpoint;
}

Checkpoint open_checkpoint(const fs::path& path) {
  Checkpoint checkpoint = open_verified_checkpoint(path);
  for (const ManifestFile& file : checkpoint.manifest_.files)
    checkpoint.files_.emplace(file.name, open_state_file(path / file.name, file));
  for (const ManifestFile& file : checkpoint.manifest_.companions) verify_file(path / file.name, file);
  for (const ManifestTensor& tensor : checkpoint.manifest_.tensors)
    for (const ManifestSlice& slice : tensor.slices) check_slice(*checkpoint.files_.at(slice.file), tensor, slice);
  return checkpoint;
}

const SafetensorsFile& Checkpoint::file_with(const ManifestTensor& tensor, const ManifestSlice& slice,
                                             Files& opened) const {
  if (const auto file = files_.find(slice.file); file != files_.end()) return *file->second;
  auto& file = opened[slice.file];
  if (!file) file = as_checkpoint([&] { return std::make_unique<SafetensorsFile>(path_ / slice.file); });
  check_slice(*file, tensor, slice);
  return *file;
}

// A copy to a device has its price, whatever its size. So what comes in many short stretches is put together on the
// host first, some whole rows at a time.
void Checkpoint::fill(const Tensor& live, const StridedRange& rows, const ManifestTensor& saved, Files& opened,
                      Stream& stream) const {
  const bool staged =
      live.device() != Device::meta &&
      (rows.apart() || live.dims() == 2 ||
       std::any_of(saved.slices.begin(), saved.slices.end(), [](const ManifestSlice& s) { return s.range.apart(); }));
  const std::int64_t size = size_of(live.dtype());
  const std::int64_t unit = rows.apart() ? rows.row : live.dims() == 2 ? live.dim(1) : 1;  // that a cut leaves whole
  const std::int64_t at_a_time =
      staged ? std::max(kStagedBytes / (unit * size), std::int64_t{1}) * unit : live.elements();
  std::unique_ptr<std::byte[]> room;
  if (staged)
    room = std::make_unique_for_overwrite<std::byte[]>(
        static_cast<std::size_t>(std::min(at_a_time, live.elements()) * size));
  for (std::int64_t done = 0; done < live.elements(); done += at_a_time) {
    const std::int64_t now = std::min(at_a_time, live.elements() - done);
    const Tensor part = elements_of(live, done, now);
    const StridedRange wanted =
        rows.apart() ? rows.some(done / unit, now / unit) : flat_range(rows.begin + done, rows.begin + done + now);
    for (const ManifestSlice& slice : saved.slices) {
      if (slice.range.begin >= wanted.end()) break;  // so do all that follow
      if (slice.range.end() <= wanted.begin) continue;
      const SafetensorsFile* file = nullptr;
      const std::byte* from = nullptr;
      each_common_run(wanted, slice.range, [&](std::int64_t to, std::int64_t at, std::int64_t count) {
        if (!file) {
          file = &file_with(saved, slice, opened);
          from = static_cast<const std::byte*>(file->tensor(slice.entry).raw());
        }
        const std::byte* source = from + at * size_of(saved.dtype);
        if (staged)
          convert_floats(room.get() + to * size, live.dtype(), source, saved.dtype, count);
        else
          upload_floats(part.slice(0, to, count), source, saved.dtype, stream);
      });
      if (file) file->forget(*file->find(slice.entry));
    }
    if (staged) upload(part, room.get(), stream);
  }
}

void Checkpoint::load(std::span<const StateTensor> tensors, Stream& stream) const {
  const auto fail = [&](const StateTensor& want, const std::string& problem, const std::string& remedy) {
    throw UserError(ExitCode::checkpoint,
                    fmt::format("{}: {} of tensor '{}' {}", path_.string(), want.part, want.tensor.name, problem),
                    remedy);
  };
  Files opened;
  for (const StateTensor& want : tensors) {
    const StridedRange rows = rows_of(want);
    const auto found = tensors_.find({want.part, want.tensor.name});
    if (found == tensors_.end()) fail(want, "is not in the checkpoint", "resume with the model and optimizer it is of");
    const ManifestTensor& saved = *found->second;
    if (saved.shape != want.tensor.shape)
      fail(want,
           fmt::format("is [{}], the run needs [{}]", fmt::join(saved.shape, ", "), fmt::join(want.tensor.shape, ", ")),
           "resume with the model it is of");
    if (saved.dtype != want.live.dtype() && want.part != kWeightPart)
      fail(want, fmt::format("is {}, the run needs {}", name_of(saved.dtype), name_of(want.live.dtype())),
           "resume with the precision it was saved with");
    fill(want.live, rows, saved, opened, stream);
  }
}

std::optional<Checkpoint> open_newest_whole(const fs::path& folder, const DamageReport& report) {
  std::vector<std::string> names;
  for (const std::int64_t step : steps_in(folder)) names.push_back(step_folder_name(step));
  std::reverse(names.begin(), names.end());
  try {
    if (const auto latest = read_latest(folder)) {
      std::erase(names, *latest);
      names.insert(names.begin(), *latest);
    }
  } catch (const UserError& error) {
    if (report) report(folder / kLatestName, error.what());
  }
  for (const std::string& name : names) {
    try {
      return open_checkpoint(folder / name);
    } catch (const UserError& error) {
      if (report) report(folder / name, error.what());
    }
  }
  return std::nullopt;
}

}  // namespace lockstep
