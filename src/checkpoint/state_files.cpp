#include "checkpoint/state_files.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "checkpoint/safetensors_writer.h"

namespace lockstep {
namespace {

using nlohmann::json;

std::string file_name(std::int64_t i, std::int64_t all) {
  return fmt::format("state-{:05}-of-{:05}.safetensors", i, all);
}

std::int64_t end_of(const StateTensor& t) { return t.begin + t.live.elements(); }
bool is_whole(const StateTensor& t) { return t.live.elements() == t.tensor.elements(); }

std::string entry_name(const std::string& part, const std::string& name, std::int64_t begin, std::int64_t end,
                       bool whole) {
  return whole ? part + "/" + name : fmt::format("{}/{}:{}-{}", part, name, begin, end);
}

// One rank's slice, on its way into the manifest.
struct Described {
  std::size_t rank;
  std::vector<std::int64_t> shape;
  int dtype;
  std::int64_t file, begin, end;
};

std::int64_t elements_of(const Described& slice) { return LogicalTensor{"", slice.shape}.elements(); }

// The slices are in order. Those without elements only say that there is such a tensor.
void check_cover(const std::string& name, const std::vector<Described>& slices) {
  const Described& first = slices.front();
  std::int64_t next = 0;
  for (const Described& s : slices) {
    LOCKSTEP_CHECK(s.shape == first.shape && s.dtype == first.dtype,
                   "{}: ranks {} and {} do not agree on its shape and type", name, first.rank, s.rank);
    if (s.begin == s.end) continue;
    LOCKSTEP_CHECK(s.begin >= next, "{}: elements {} to {} of rank {} are another slice's too", name, s.begin,
                   std::min(next, s.end), s.rank);
    LOCKSTEP_CHECK(s.begin == next, "{}: no rank has elements {} to {}", name, next, s.begin);
    next = s.end;
  }
  LOCKSTEP_CHECK(next == elements_of(first), "{}: slices cover {} of {} elements", name, next, elements_of(first));
}

}  // namespace

StateFiles::StateFiles(std::span<const StateTensor> pieces, std::int64_t limit) {
  for (const StateTensor& t : pieces) {
    LOCKSTEP_CHECK(
        t.live.device() == Device::cpu && t.live.dims() == 1 && t.live.contiguous() && is_float(t.live.dtype()),
        "{} of '{}' is no flat float tensor on the host", t.part, t.tensor.name);
    LOCKSTEP_CHECK(t.row == 0, "{} of '{}': rows that lie apart cannot be saved yet", t.part, t.tensor.name);
    pieces_.push_back({.state = &t});
  }
  std::sort(pieces_.begin(), pieces_.end(), [](const Piece& a, const Piece& b) {
    return std::tie(a.state->part, a.state->tensor.name, a.state->begin) <
           std::tie(b.state->part, b.state->tensor.name, b.state->begin);
  });
  std::int64_t filled = 0;
  for (Piece& piece : pieces_) {
    const std::int64_t bytes = piece.state->live.bytes();
    if (bytes == 0) continue;  // in no file
    if (files_ == 0 || (filled > 0 && filled + bytes > limit)) {
      ++files_;
      filled = 0;
    }
    filled += bytes;
    piece.file = files_ - 1;
  }
}

std::string StateFiles::described() const {
  json slices = json::array();
  for (const Piece& piece : pieces_) {
    const StateTensor& t = *piece.state;
    slices.push_back(
        {t.part, t.tensor.name, t.tensor.shape, static_cast<int>(t.live.dtype()), piece.file, t.begin, end_of(t)});
  }
  try {
    return json{{"files", files_}, {"slices", std::move(slices)}}.dump();
  } catch (const json::exception& error) {
    throw ProgramError(fmt::format("the name of a tensor is not UTF-8: {}", error.what()));
  }
}

std::vector<ManifestFile> StateFiles::write(const std::filesystem::path& into, std::int64_t first, std::int64_t all,
                                            const Disk& disk) const {
  std::vector<std::vector<NamedTensor>> inside(static_cast<std::size_t>(files_));
  for (const Piece& piece : pieces_) {
    const StateTensor& t = *piece.state;
    if (t.live.elements() == 0) continue;
    inside[static_cast<std::size_t>(piece.file)].push_back(
        {entry_name(t.part, t.tensor.name, t.begin, end_of(t), is_whole(t)),
         is_whole(t) ? t.live.reshape(Shape(std::span(t.tensor.shape))) : t.live});
  }
  std::vector<ManifestFile> files;
  for (const std::vector<NamedTensor>& tensors : inside) {
    const std::string name = file_name(first + std::ssize(files), all);
    DiskFile file(disk, into / name);
    write_safetensors(file, tensors);
    const WrittenFile written = file.finish();
    files.push_back({.name = name, .bytes = written.bytes, .checksum = written.checksum});
  }
  return files;
}

WholeState join_state(std::span<const std::string> described) {
  WholeState whole{.tensors = {}, .begins = {0}};
  std::map<std::pair<std::string, std::string>, std::vector<Described>> all;
  for (std::size_t rank = 0; rank < described.size(); ++rank) {
    const json said = json::parse(described[rank]);
    for (const json& s : said.at("slices"))
      all[{s[0], s[1]}].push_back({.rank = rank,
                                   .shape = s[2],
                                   .dtype = s[3],
                                   .file = whole.begins.back() + s[4].get<std::int64_t>(),
                                   .begin = s[5],
                                   .end = s[6]});
    whole.begins.push_back(whole.begins.back() + said.at("files").get<std::int64_t>());
  }
  for (auto& [key, slices] : all) {
    const auto& [part, name] = key;
    std::stable_sort(slices.begin(), slices.end(),
                     [](const Described& a, const Described& b) { return a.begin < b.begin; });
    check_cover(part + "/" + name, slices);
    std::erase_if(slices, [](const Described& s) { return s.begin == s.end; });
    if (slices.empty()) continue;  // a tensor without elements
    const Described& first = slices.front();
    ManifestTensor& tensor = whole.tensors.emplace_back(ManifestTensor{
        .part = part, .name = name, .shape = first.shape, .dtype = static_cast<DType>(first.dtype), .slices = {}});
    for (const Described& s : slices)
      tensor.slices.push_back({.file = file_name(s.file, whole.begins.back()),
                               .entry = entry_name(part, name, s.begin, s.end, s.end - s.begin == elements_of(s)),
                               .begin = s.begin,
                               .end = s.end});
  }
  return whole;
}

}  // namespace lockstep
