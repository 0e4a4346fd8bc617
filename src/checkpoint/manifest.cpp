#include "checkpoint/manifest.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <utility>

#include "base/checksum.h"
#include "base/error.h"
#include "base/integers.h"
#include "checkpoint/disk.h"
#include "checkpoint/hf_companions.h"
#include "checkpoint/manifest_json.h"
#include "checkpoint/safetensors_index.h"
#include "spec/text/text_input.h"

namespace lockstep {
namespace {

using nlohmann::json;

constexpr std::string_view kFormat = "lockstep checkpoint";
constexpr std::string_view kSealBegin = R"({"xxh3":")", kSealEnd = R"(",)";
constexpr std::size_t kSumDigits = 16;
constexpr std::size_t kMaxNameBytes = 1024;
constexpr int kFlatVersion = 1;  // of manifests in which every slice is a flat range
constexpr int kRowsVersion = 2;  // in which rows may be strided
constexpr int kCompanionsVersion = 3;
constexpr int kLossScaleVersion = 4;
constexpr int kLossSpikesVersion = 5;

std::string hex(std::uint64_t value) { return fmt::format("{:016x}", value); }

std::uint64_t sum_of(std::string_view text) { return checksum(std::as_bytes(std::span(text))); }

// Sixteen lower-case hex digits.
std::optional<std::uint64_t> parse_hex(std::string_view text) {
  const auto digit = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  if (text.size() != kSumDigits || !std::all_of(text.begin(), text.end(), digit)) return std::nullopt;
  std::uint64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value, 16);
  return value;
}

[[noreturn]] void refuse_manifest(const std::string& where, const std::string& problem) {
  throw UserError(ExitCode::checkpoint, where + ": " + problem,
                  "the checkpoint is damaged or was edited: use another one");
}

// One object of the document: every field is asked for exactly once and none is left over. `place` is where it stands,
// for messages.
class Object {
 public:
  Object(const json& value, std::string place, const std::string& where, std::size_t fields)
      : value_(value), place_(std::move(place)), where_(where) {
    if (!value.is_object()) fail("", "is not an object");
    if (value.size() <= fields) return;  // a field that is missing is found when it is asked for
    fail("", fmt::format("has {} fields where {} belong", value.size(), fields));
  }

  const json& at(const char* key) const {
    const auto found = value_.find(key);
    if (found == value_.end()) fail(key, "is missing");
    return *found;
  }
  const json& list(const char* key) const {
    const json& value = at(key);
    if (!value.is_array()) fail(key, "is not a list");
    return value;
  }
  std::uint64_t whole(const char* key, std::uint64_t least, std::uint64_t most) const {
    const json& value = at(key);
    if (!value.is_number_unsigned() || value.get<std::uint64_t>() < least || value.get<std::uint64_t>() > most)
      fail(key, fmt::format("is not a whole number from {} to {}", least, most));
    return value.get<std::uint64_t>();
  }
  std::int64_t count(const char* key, std::int64_t least = 0) const {
    constexpr auto kMost = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
    return static_cast<std::int64_t>(whole(key, static_cast<std::uint64_t>(least), kMost));
  }
  std::string text(const char* key, std::size_t most) const {
    const json& value = at(key);
    if (!value.is_string()) fail(key, "is not a string");
    const auto& text = value.get_ref<const std::string&>();
    if (text.size() > most) fail(key, fmt::format("has {} bytes, at most {} are allowed", text.size(), most));
    return text;
  }
  std::uint64_t sum(const char* key) const {
    const auto value = parse_hex(text(key, kSumDigits));
    if (!value) fail(key, "is not 16 lower-case hex digits");
    return *value;
  }
  [[noreturn]] void fail(std::string_view key, const std::string& problem) const {
    const std::string dot = place_.empty() || key.empty() ? "" : ".";
    const std::string field = place_ + dot + std::string(key);
    refuse_manifest(where_, field.empty() ? problem : fmt::format("field '{}' {}", field, problem));
  }

 private:
  const json& value_;
  std::string place_;
  const std::string& where_;
};

LossScaleState read_loss_scale_state(const Object& o) {
  const std::uint64_t scale = o.whole("loss_scale", 1, std::uint64_t{1} << LossScale::kMost);
  if (!std::has_single_bit(scale)) o.fail("loss_scale", "is not a power of two");
  return {.exponent = std::countr_zero(scale), .steps = o.count("loss_scale_steps")};
}

LossSpikeState read_loss_spike_state(const Object& o) {
  LossSpikeState state;
  const auto bounded = [&o](const char* key, std::size_t most) -> const json& {
    const json& list = o.list(key);
    if (list.size() > most) o.fail(key, fmt::format("has {} items, at most {} are allowed", list.size(), most));
    return list;
  };
  for (const json& first : bounded("skipped", kMaxSkippedBatches)) {
    constexpr auto kMost = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
    if (!first.is_number_unsigned() || first.get<std::uint64_t>() > kMost)
      o.fail("skipped", "holds something that is not the number of a sample");
    state.skipped.push_back(first.get<std::int64_t>());
  }
  for (const json& loss : bounded("losses", kMaxKeptLosses)) {
    if (!loss.is_number() || !std::isfinite(loss.get<double>())) o.fail("losses", "holds something that is no loss");
    state.losses.push_back(loss.get<double>());
  }
  return state;
}

// What is in it beside what all have.
struct ProgressFields {
  bool scaled = false, spikes = false;
  std::size_t count() const { return std::size_t{6} + (scaled ? 2 : 0) + (spikes ? 2 : 0); }
};

Progress read_progress(const Object& o, const ProgressFields& fields) {
  return {.step = o.count("step"),
          .updates = o.count("updates"),
          .samples = o.count("samples"),
          .seed = o.whole("seed", 0, std::numeric_limits<std::uint64_t>::max()),
          .data_fingerprint = o.sum("data_fingerprint"),
          .run_file = o.text("run_file", kMaxRunFileBytes),
          .loss_scale = fields.scaled ? std::optional(read_loss_scale_state(o)) : std::nullopt,
          .spikes = fields.spikes ? std::optional(read_loss_spike_state(o)) : std::nullopt};
}

ManifestFile read_file(const Object& o) {
  ManifestFile file{.name = o.text("name", kMaxNameBytes), .bytes = o.count("bytes"), .checksum = o.sum("xxh3")};
  if (!is_plain_name(file.name) || file.name == kManifestName)
    o.fail("name", fmt::format("is {}, which is not the plain name of a file", quote_text(file.name)));
  return file;
}

// The elements of the shape, proven to fit 63 bits as bytes.
std::int64_t read_shape(const Object& o, std::vector<std::int64_t>& shape) {
  const json& list = o.list("shape");
  if (list.size() > static_cast<std::size_t>(Shape::kMaxDims))
    o.fail("shape", fmt::format("has {} dims, at most {} are allowed", list.size(), Shape::kMaxDims));
  std::optional<std::int64_t> bytes = 8;
  for (const json& extent : list) {
    constexpr auto kMost = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
    if (!extent.is_number_unsigned() || extent.get<std::uint64_t>() < 1 || extent.get<std::uint64_t>() > kMost)
      o.fail("shape", "holds something that is not a whole number of at least 1");
    shape.push_back(extent.get<std::int64_t>());
    if (bytes) bytes = checked_mul(*bytes, shape.back());
  }
  if (!bytes) o.fail("shape", "has more elements than fit");
  return *bytes / 8;
}

// Reads the tensors one after the other and remembers what may come only once.
class TensorReader {
 public:
  TensorReader(const std::vector<ManifestFile>& files, bool flat, const std::string& where)
      : where_(where), flat_(flat) {
    for (const ManifestFile& file : files) files_.insert(file.name);
  }

  ManifestTensor read(const json& value, const std::string& place) {
    const Object o(value, place, where_, 5);
    ManifestTensor tensor;
    tensor.part = o.text("part", kMaxNameBytes);
    tensor.name = o.text("name", kMaxNameBytes);
    const auto in_word = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_'; };
    if (tensor.part.empty() || !std::all_of(tensor.part.begin(), tensor.part.end(), in_word))
      o.fail("part", fmt::format("is {}, which is no word of a-z, 0-9 and _", quote_text(tensor.part)));
    if (tensor.name.empty()) o.fail("name", "is empty");
    if (!names_.emplace(tensor.part, tensor.name).second)
      o.fail("name", fmt::format("is {}, which this part has already", quote_text(tensor.name)));
    const std::int64_t elements = read_shape(o, tensor.shape);
    const std::string dtype = o.text("dtype", kMaxNameBytes);
    const auto known = dtype_from_safetensors(dtype);
    if (!known || !is_float(*known)) o.fail("dtype", fmt::format("is {}, which is no float type", quote_text(dtype)));
    tensor.dtype = *known;
    std::int64_t pitch = 0;  // of all slices that have one
    for (const json& item : o.list("slices")) {
      const std::string inside = fmt::format("{}.slices[{}]", place, tensor.slices.size());
      const bool apart = !flat_ && (item.contains("row") || item.contains("pitch"));
      const Object slice(item, inside, where_, apart ? 6 : 4);
      tensor.slices.push_back(read_slice(slice, elements));
      if (apart) read_rows(slice, tensor.slices.back().range, pitch);
    }
    if (pitch == 0)
      check_flat(o, tensor, elements);
    else
      check_cover(o, tensor, elements);
    return tensor;
  }

 private:
  // One slice after the other.
  static void check_flat(const Object& o, const ManifestTensor& tensor, std::int64_t elements) {
    std::int64_t next = 0;
    for (std::size_t i = 0; i < tensor.slices.size(); next = tensor.slices[i++].range.end())
      if (const std::int64_t begin = tensor.slices[i].range.begin; begin != next)
        o.fail(fmt::format("slices[{}].begin", i), fmt::format("is {}, the slice before ends at {}", begin, next));
    if (next != elements) o.fail("slices", fmt::format("cover {} of {} elements", next, elements));
  }

  // Strided rows have others between them.
  static void check_cover(const Object& o, const ManifestTensor& tensor, std::int64_t elements) {
    std::vector<StridedRange> pieces;
    for (const ManifestSlice& slice : tensor.slices) {
      if (!pieces.empty() && slice.range.begin <= pieces.back().begin)
        o.fail(fmt::format("slices[{}].begin", pieces.size()),
               fmt::format("is {}, the slice before begins at {}", slice.range.begin, pieces.back().begin));
      pieces.push_back(slice.range);
    }
    const auto fault = find_cover_fault(pieces, elements);
    if (!fault) return;
    if (!fault->twice_in) o.fail("slices", fmt::format("leave out elements {} to {}", fault->begin, fault->end));
    o.fail(fmt::format("slices[{}]", *fault->twice_in),
           fmt::format("has elements {} to {}, which another slice has too", fault->begin, fault->end));
  }

  // The rows of a slice whose range is known to lie within the tensor.
  static void read_rows(const Object& o, StridedRange& range, std::int64_t& pitch) {
    const std::int64_t end = range.end();
    range.row = o.count("row", 1);
    range.pitch = o.count("pitch", 1);
    if (range.row >= range.pitch)
      o.fail("row", fmt::format("is {}, not below the pitch of {}", range.row, range.pitch));
    const std::int64_t last = end - range.begin - range.row;  // where the last row begins
    if (last < range.pitch || last % range.pitch != 0)
      o.fail("end", fmt::format("is {}, not where the second or a later row of {} ends, {} apart from {} on", end,
                                range.row, range.pitch, range.begin));
    range.rows = last / range.pitch + 1;
    if (pitch != 0 && range.pitch != pitch)
      o.fail("pitch", fmt::format("is {}, that of a slice before is {}", range.pitch, pitch));
    pitch = range.pitch;
  }

  ManifestSlice read_slice(const Object& o, std::int64_t elements) {
    ManifestSlice slice{
        .file = o.text("file", kMaxNameBytes), .entry = o.text("entry", 2 * kMaxNameBytes), .range = {}};
    const std::int64_t begin = o.count("begin"), end = o.count("end");
    if (end <= begin || end > elements)
      o.fail("end", fmt::format("is {}, not above {} and at most {}", end, begin, elements));
    slice.range = flat_range(begin, end);
    if (!files_.contains(slice.file))
      o.fail("file", fmt::format("is {}, which is not in the list of files", quote_text(slice.file)));
    if (!entries_.emplace(slice.file, slice.entry).second)
      o.fail("entry", fmt::format("is {}, which another slice has already", quote_text(slice.entry)));
    return slice;
  }

  const std::string& where_;
  const bool flat_;
  std::set<std::string, std::less<>> files_;
  std::set<std::pair<std::string, std::string>> names_, entries_;
};

// The object without its seal, once the seal holds.
std::string unsealed(std::string_view text, const std::string& where) {
  const std::size_t head = kSealBegin.size() + kSumDigits + kSealEnd.size();
  if (text.size() > kMaxManifestBytes)
    refuse_manifest(where, fmt::format("is {} bytes long, at most {} are read", text.size(), kMaxManifestBytes));
  if (text.size() < head || !text.starts_with(kSealBegin) || !text.substr(0, head).ends_with(kSealEnd))
    refuse_manifest(where, "does not begin with its checksum");
  const auto sum = parse_hex(text.substr(kSealBegin.size(), kSumDigits));
  const std::string_view rest = text.substr(head);
  if (!sum || *sum != sum_of(rest)) refuse_manifest(where, "its checksum is not that of its bytes");
  std::string object(text.substr(head - 1));
  object.front() = '{';
  return object;
}

}  // namespace

const ManifestTensor* Manifest::find(std::string_view part, std::string_view name) const {
  const auto at = std::find_if(tensors.begin(), tensors.end(),
                               [&](const ManifestTensor& t) { return t.part == part && t.name == name; });
  return at == tensors.end() ? nullptr : &*at;
}

std::string manifest_text(const Manifest& manifest) {
  using Ordered = nlohmann::ordered_json;
  const Progress& p = manifest.progress;
  Ordered tensors = Ordered::array(), files = Ordered::array(), companions = Ordered::array();
  int version = kFlatVersion;
  for (const ManifestTensor& t : manifest.tensors) {
    Ordered slices = Ordered::array();
    for (const ManifestSlice& s : t.slices) {
      slices.push_back({{"file", s.file}, {"entry", s.entry}, {"begin", s.range.begin}, {"end", s.range.end()}});
      if (!s.range.apart()) continue;
      slices.back()["row"] = s.range.row;
      slices.back()["pitch"] = s.range.pitch;
      version = kRowsVersion;
    }
    tensors.push_back({{"part", t.part},
                       {"name", t.name},
                       {"shape", t.shape},
                       {"dtype", safetensors_name(t.dtype)},
                       {"slices", std::move(slices)}});
  }
  const auto add = [](Ordered& list, const ManifestFile& f) {
    list.push_back({{"name", f.name}, {"bytes", f.bytes}, {"xxh3", hex(f.checksum)}});
  };
  for (const ManifestFile& f : manifest.files) add(files, f);
  for (const ManifestFile& f : manifest.companions) add(companions, f);
  if (!companions.empty()) version = kCompanionsVersion;
  if (p.loss_scale) version = kLossScaleVersion;
  if (p.spikes) version = kLossSpikesVersion;
  Ordered document = {{"format", kFormat},
                      {"version", version},
                      {"progress",
                       {{"step", p.step},
                        {"updates", p.updates},
                        {"samples", p.samples},
                        {"seed", p.seed},
                        {"data_fingerprint", hex(p.data_fingerprint)},
                        {"run_file", p.run_file}}},
                      {"tensors", std::move(tensors)},
                      {"files", std::move(files)}};
  if (p.loss_scale) {
    document["progress"]["loss_scale"] = std::uint64_t{1} << p.loss_scale->exponent;
    document["progress"]["loss_scale_steps"] = p.loss_scale->steps;
  }
  if (p.spikes) {
    document["progress"]["skipped"] = p.spikes->skipped;
    document["progress"]["losses"] = p.spikes->losses;
  }
  if (version >= kCompanionsVersion) document["companions"] = std::move(companions);
  try {
    return seal_manifest(document.dump() + "\n");
  } catch (const json::exception& error) {
    throw ProgramError(fmt::format("text for a manifest is not UTF-8: {}", error.what()));
  }
}

std::string seal_manifest(std::string_view object) {
  LOCKSTEP_CHECK(!object.empty() && object.front() == '{', "a manifest is an object");
  const std::string rest(object.substr(1));
  return std::string(kSealBegin) + hex(sum_of(rest)) + std::string(kSealEnd) + rest;
}

Manifest parse_manifest(std::string_view text, const std::string& where) {
  const json document = parse_manifest_json(unsealed(text, where), where);
  const Object any(document, "", where, 6);
  if (any.text("format", kMaxNameBytes) != kFormat) any.fail("format", fmt::format("is not '{}'", kFormat));
  const std::uint64_t version = any.whole("version", 0, std::numeric_limits<std::uint64_t>::max());
  if (version < kFlatVersion || version > kManifestVersion) {
    throw UserError(ExitCode::checkpoint,
                    fmt::format("{}: field 'version' is {}, this program reads versions {} to {}", where, version,
                                kFlatVersion, kManifestVersion),
                    "use the program that wrote it");
  }
  const bool has_companions = version >= kCompanionsVersion;
  const Object top(document, "", where, has_companions ? 6 : 5);
  Manifest manifest;
  const json& progress = top.at("progress");
  ProgressFields fields{.scaled = version == kLossScaleVersion, .spikes = version >= kLossSpikesVersion};
  if (fields.spikes) fields.scaled = progress.contains("loss_scale");
  manifest.progress = read_progress(Object(progress, "progress", where, fields.count()), fields);
  std::set<std::string, std::less<>> names;
  const auto read_list = [&](const char* key, std::vector<ManifestFile>& files, bool companions) {
    for (const json& item : top.list(key)) {
      const Object o(item, fmt::format("{}[{}]", key, files.size()), where, 3);
      files.push_back(read_file(o));
      const std::string& name = files.back().name;
      if (!names.insert(name).second) o.fail("name", fmt::format("is {}, which comes twice", quote_text(name)));
      if (companions && !is_kept_name(name))
        o.fail("name", fmt::format("is {}, which is not a file that a checkpoint keeps", quote_text(name)));
    }
  };
  read_list("files", manifest.files, false);
  if (has_companions) read_list("companions", manifest.companions, true);
  TensorReader reader(manifest.files, version == kFlatVersion, where);
  for (const json& item : top.list("tensors"))
    manifest.tensors.push_back(reader.read(item, fmt::format("tensors[{}]", manifest.tensors.size())));
  return manifest;
}

}  // namespace lockstep
