#include "train/start_agreement.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <vector>

#include "base/checksum.h"
#include "checkpoint/file_content.h"
#include "checkpoint/find_checkpoint.h"
#include "checkpoint/hf_folder.h"
#include "checkpoint/lora_base.h"
#include "comm/gather_texts.h"
#include "tensor/transfer.h"

namespace lockstep {

namespace {

std::string hex(std::uint64_t sum) { return fmt::format("{:016x}", sum); }

// One parameter's elements that are here: which they are, and what.
struct Held {
  std::uint64_t which, what;
};

template <class Value>
void add(Checksum& sum, const Value& value) {
  sum.update(std::as_bytes(std::span(&value, 1)));
}

// Where in the tensor its elements are, not where in this rank's memory.
std::uint64_t place_of(const Replica::Named& named) {
  Checksum sum;
  sum.update(std::as_bytes(std::span(named.tensor.name)));
  add(sum, named.master.dtype());
  for (const Run& run : named.runs)
    for (const std::int64_t part : {run.there.begin, run.rows(), run.row(), run.rows() == 1 ? 0 : run.there.pitch})
      add(sum, part);
  return sum.value();
}

constexpr std::int64_t kRoom = 1 << 22;  // elements that are on the host at a time

// Elements from one to another of a flat tensor, on the host. There is room for them.
std::span<const std::byte> host_bytes(const Tensor& flat, std::int64_t first, std::int64_t count,
                                      std::vector<std::byte>& room, Stream& stream) {
  const Tensor part = flat.slice(0, first, count);
  room.resize(static_cast<std::size_t>(part.bytes()));
  download(room.data(), part, stream);
  return room;
}

// As many rows at a time as there is room for, with what is between them; of a row that is longer, parts.
void add_run(Checksum& sum, const Tensor& flat, const Run& run, std::vector<std::byte>& room, Stream& stream) {
  const auto width = static_cast<std::size_t>(size_of(flat.dtype()));
  const std::int64_t pitch = std::max(run.row(), run.here.pitch), together = std::max<std::int64_t>(1, kRoom / pitch);
  for (std::int64_t i = 0; i < run.rows(); i += together) {
    const std::int64_t first = run.here.begin + i * run.here.pitch, rows = std::min(together, run.rows() - i);
    if (rows == 1) {
      for (std::int64_t at = 0; at < run.row(); at += kRoom)
        sum.update(host_bytes(flat, first + at, std::min(kRoom, run.row() - at), room, stream));
      continue;
    }
    const auto bytes = host_bytes(flat, first, (rows - 1) * run.here.pitch + run.row(), room, stream);
    for (std::int64_t row = 0; row < rows; ++row)
      sum.update(bytes.subspan(static_cast<std::size_t>(row * run.here.pitch) * width,
                               static_cast<std::size_t>(run.row()) * width));
  }
}

std::uint64_t value_of(const Replica::Named& named, std::vector<std::byte>& room, Stream& stream) {
  Checksum sum;
  for (const Run& run : named.runs) add_run(sum, named.master, run, room, stream);
  return sum.value();
}

}  // namespace

NamedValues content_of(const RunData& data) { return {{"the content of its data", hex(data.fingerprint())}}; }

NamedValues content_of(const Checkpoint& checkpoint) {
  const std::string text = manifest_text(checkpoint.manifest());
  return {{"the content of its checkpoint", hex(checksum(std::as_bytes(std::span(text))))}};
}

NamedValues imported_content(const RunSpec& spec, Communicator& ranks) {
  NamedValues all;
  if (spec.lora) require_base_folder(spec);
  if (!spec.model_hf.empty())
    all.emplace_back("the content of model.hf", content_of_files(HfFolder(spec.model_hf).files(), ranks));
  if (!spec.model_from.empty()) {  // a manifest has the checksum of every file
    std::vector<std::filesystem::path> files;
    if (const auto manifest = find_manifest(spec.model_from)) files.push_back(*manifest);
    all.emplace_back("the content of model.from", content_of_files(files, ranks));
  }
  return all;
}

std::optional<std::string> find_different_weights(Communicator& ranks, const Replica& replica, Stream& stream) {
  std::vector<Held> here;
  std::map<std::uint64_t, std::string> names;
  std::vector<std::byte> room;
  for (const Replica::Named& named : replica.tensors()) {
    if (named.runs.empty()) continue;
    here.push_back({place_of(named), value_of(named, room, stream)});
    names[here.back().which] = named.tensor.name;
  }
  std::string mine(here.size() * sizeof(Held), '\0');
  std::memcpy(mine.data(), here.data(), mine.size());
  const std::vector<std::string> all = gather_texts(ranks, mine);

  // Who has what of each, and of which it is not one value: the first in the order of the lowest rank that has it.
  std::map<std::uint64_t, std::map<std::uint64_t, std::vector<int>>> holders;
  std::vector<std::uint64_t> order;
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    for (std::size_t at = 0; at + sizeof(Held) <= all[rank].size(); at += sizeof(Held)) {
      Held held;
      std::memcpy(&held, all[rank].data() + at, sizeof held);
      if (!holders.contains(held.which)) order.push_back(held.which);
      holders[held.which][held.what].push_back(static_cast<int>(rank));
    }
  std::string told;
  for (const std::uint64_t which : order) {
    if (holders[which].size() == 1) continue;
    // Who holds it knows its name; the others do not, and all are to say the same.
    const auto& values = holders[which];
    std::string name = names.contains(which) ? names[which] : "";
    for (const std::string& other : gather_texts(ranks, name))
      if (!other.empty()) name = other;
    for (const auto& [value, who] : values)
      told += fmt::format("{}{} {} {}{}", told.empty() ? "" : ", ", ranks_text(who), who.size() == 1 ? "has" : "have",
                          told.empty() ? fmt::format("{} = (checksum) ", name) : "", hex(value));
    return fmt::format("the ranks do not start from the same weights: {}", told);
  }
  return std::nullopt;
}

}  // namespace lockstep
