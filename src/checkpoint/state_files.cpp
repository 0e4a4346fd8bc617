#include "checkpoint/state_files.h"

#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "checkpoint/rows.h"
#include "checkpoint/safetensors_writer.h"

namespace lockstep {
namespace {

using nlohmann::json;

std::string file_name(std::int64_t i, std::int64_t all) {
  return fmt::format("state-{:05}-of-{:05}.safetensors", i, all);
}

// Slices of one tensor have names of their own: no two begin at one element.
std::string entry_name(const std::string& part, const std::string& name, const StridedRange& rows,
                       std::int64_t elements) {
  if (rows.elements() == elements) return part + "/" + name;
  const std::string range = fmt::format("{}/{}:{}-{}", part, name, rows.begin, rows.end());
  return rows.apart() ? fmt::format("{}:{}/{}", range, rows.row, rows.pitch) : range;
}

// As others should see it who open the file.
Shape entry_shape(const LogicalTensor& tensor, const StridedRange& rows) {
  if (rows.elements() == tensor.elements()) return Shape(std::span(tensor.shape));
  return rows.apart() ? Shape({rows.rows, rows.row}) : Shape({rows.row});
}

// One rank's slice, on its way into the manifest.
struct Described {
  std::size_t rank;
  std::vector<std::int64_t> shape;
  int dtype;
  std::int64_t file;
  StridedRange rows;
};

std::int64_t elements_of(const Described& slice) { return LogicalTensor{"", slice.shape}.elements(); }

// Slices without elements only say that there is such a tensor.
void check_cover(const std::string& name, const std::vector<Described>& slices) {
  const Described& first = slices.front();
  const Described* apart = nullptr;
  std::vector<StridedRange> pieces;
  for (const Described& s : slices) {
    LOCKSTEP_CHECK(s.shape == first.shape && s.dtype == first.dtype,
                   "{}: ranks {} and {} do not agree on its shape and type", name, first.rank, s.rank);
    pieces.push_back(s.rows);
    if (!s.rows.apart()) continue;
    if (!apart) apart = &s;
    LOCKSTEP_CHECK(s.rows.pitch == apart->rows.pitch, "{}: rows of rank {} are {} elements apart, those of rank {} {}",
                   name, apart->rank, apart->rows.pitch, s.rank, s.rows.pitch);
  }
  const auto fault = find_cover_fault(pieces, elements_of(first));
  if (!fault) return;
  LOCKSTEP_CHECK(fault->twice_in, "{}: no rank has elements {} to {}", name, fault->begin, fault->end);
  LOCKSTEP_CHECK(false, "{}: elements {} to {} of rank {} are another slice's too", name, fault->begin, fault->end,
                 slices[*fault->twice_in].rank);
}

}  // namespace

StateFiles::StateFiles(std::span<const StateTensor> pieces, std::int64_t limit, Stream* stream) : stream_(stream) {
  for (const StateTensor& t : pieces) {
    LOCKSTEP_CHECK(stream || t.live.device() == Device::cpu, "{} of '{}' is on {}, not on the host", t.part,
                   t.tensor.name, name_of(t.live.device()));
    pieces_.push_back({.state = &t, .rows = rows_of(t)});
  }
  std::sort(pieces_.begin(), pieces_.end(), [](const Piece& a, const Piece& b) {
    return std::tie(a.state->part, a.state->tensor.name, a.state->range.begin) <
           std::tie(b.state->part, b.state->tensor.name, b.state->range.begin);
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
    const StridedRange& rows = piece.rows;
    slices.push_back({t.part, t.tensor.name, t.tensor.shape, static_cast<int>(t.live.dtype()), piece.file, rows.begin,
                      rows.row, rows.pitch, rows.rows});
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
        {.name = entry_name(t.part, t.tensor.name, piece.rows, t.tensor.elements()),
         .tensor = t.live,
         .shape = entry_shape(t.tensor, piece.rows)});
  }
  std::vector<ManifestFile> files;
  for (const std::vector<NamedTensor>& tensors : inside) {
    const std::string name = file_name(first + std::ssize(files), all);
    DiskFile file(disk, into / name);
    write_safetensors(file, tensors, {}, stream_);
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
                                   .rows = {.begin = s[5], .row = s[6], .pitch = s[7], .rows = s[8]}});
    whole.begins.push_back(whole.begins.back() + said.at("files").get<std::int64_t>());
  }
  for (auto& [key, slices] : all) {
    const auto& [part, name] = key;
    std::stable_sort(slices.begin(), slices.end(),
                     [](const Described& a, const Described& b) { return a.rows.begin < b.rows.begin; });
    check_cover(part + "/" + name, slices);
    std::erase_if(slices, [](const Described& s) { return s.rows.rows == 0; });
    if (slices.empty()) continue;  // a tensor without elements
    const Described& first = slices.front();
    ManifestTensor& tensor = whole.tensors.emplace_back(ManifestTensor{
        .part = part, .name = name, .shape = first.shape, .dtype = static_cast<DType>(first.dtype), .slices = {}});
    for (const Described& s : slices)
      tensor.slices.push_back({.file = file_name(s.file, whole.begins.back()),
                               .entry = entry_name(part, name, s.rows, elements_of(s)),
                               .range = s.rows});
  }
  return whole;
}

}  // namespace lockstep
