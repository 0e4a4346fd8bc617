// What the tests of checkpoints share: a folder of their own, and a state whose every element is known from the step.
#pragma once
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/error.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/checkpoint_reader.h"
#include "tensor/cpu/stream.h"

namespace lockstep::checkpoint_tests {

namespace fs = std::filesystem;

// The state of a checkpoint that one rank saved.
inline constexpr const char* kStateFile = "state-00000-of-00001.safetensors";

// Gone with the test. In memory where there is such a place: hundreds of saves need not wait for a real disk.
class TempFolder {
 public:
  TempFolder() {
    const fs::path base = ::access("/dev/shm", W_OK) == 0 ? fs::path("/dev/shm") : fs::temp_directory_path();
    std::string name = (base / "lockstep-XXXXXX").string();
    if (!::mkdtemp(name.data())) throw std::runtime_error("mkdtemp");
    path_ = name;
  }
  ~TempFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

inline std::string bytes_of(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline void write_bytes(const fs::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

inline std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& item : fs::directory_iterator(folder)) names.push_back(item.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

// Every file below a folder with its bytes: equal before and after means untouched.
inline std::vector<std::pair<std::string, std::string>> everything_in(const fs::path& folder) {
  std::vector<std::pair<std::string, std::string>> all;
  for (const auto& item : fs::recursive_directory_iterator(folder))
    if (item.is_regular_file()) all.emplace_back(item.path().string(), bytes_of(item.path()));
  std::sort(all.begin(), all.end());
  return all;
}

// Logical tensors with known bytes, cut into `pieces` of odd sizes each.
class FakeState {
 public:
  struct Kind {
    std::string part, name;
    std::vector<std::int64_t> shape;
    DType dtype;
  };

  static std::vector<Kind> kinds() {
    return {{"weight", "model.embed_tokens.weight", {37, 24}, DType::f32},
            {"m", "model.embed_tokens.weight", {37, 24}, DType::f32},
            {"v", "model.embed_tokens.weight", {37, 24}, DType::bf16},
            {"weight", "model.norm.weight", {29}, DType::f64},
            {"momentum", "h.0.attn \"é\"", {3, 5, 7}, DType::f16}};
  }

  explicit FakeState(int pieces = 1, std::vector<Kind> kinds = FakeState::kinds()) : kinds_(std::move(kinds)) {
    for (const Kind& kind : kinds_) {
      const LogicalTensor logical{kind.name, kind.shape};
      const std::int64_t n = logical.elements();
      auto& bytes = storage_.emplace_back(std::make_unique<std::vector<double>>(n));  // room for any type, aligned
      for (int i = 0; i < pieces; ++i) {
        const std::int64_t begin = n * i / pieces, end = n * (i + 1) / pieces;  // a piece may be empty
        auto* at = reinterpret_cast<std::byte*>(bytes->data()) + begin * size_of(kind.dtype);
        tensors_.push_back(
            {kind.part, logical, flat_range(begin, end), Tensor(at, kind.dtype, Device::cpu, {end - begin})});
      }
    }
  }

  // Every bit pattern, NaNs included: a checkpoint moves bytes.
  void set(std::int64_t step) {
    for (std::size_t i = 0; i < kinds_.size(); ++i) {
      auto* bytes = reinterpret_cast<unsigned char*>(storage_[i]->data());
      const std::int64_t count = LogicalTensor{"", kinds_[i].shape}.elements() * size_of(kinds_[i].dtype);
      std::uint64_t x = static_cast<std::uint64_t>(step) * 1000003 + i;
      for (std::int64_t b = 0; b < count; ++b) {
        x = x * 6364136223846793005ull + 1442695040888963407ull;
        bytes[b] = static_cast<unsigned char>(x >> 56);
      }
    }
  }

  bool is(std::int64_t step) const {
    FakeState other(1, kinds_);
    other.set(step);
    for (std::size_t i = 0; i < kinds_.size(); ++i) {
      const std::int64_t count = LogicalTensor{"", kinds_[i].shape}.elements() * size_of(kinds_[i].dtype);
      if (std::memcmp(storage_[i]->data(), other.storage_[i]->data(), static_cast<std::size_t>(count)) != 0)
        return false;
    }
    return true;
  }

  const std::vector<StateTensor>& tensors() const { return tensors_; }

 private:
  std::vector<Kind> kinds_;
  std::vector<std::unique_ptr<std::vector<double>>> storage_;
  std::vector<StateTensor> tensors_;
};

inline Progress progress_at(std::int64_t step) {
  return {.step = step,
          .updates = step - 1,
          .samples = step * 24,
          .seed = 0xffffffffffffff00ull + static_cast<std::uint64_t>(step),
          .data_fingerprint = 0x0123456789abcdefull,
          .run_file = "[train]\nsteps = 7 # \"é\"\n"};
}

inline fs::path save(const fs::path& folder, std::int64_t step, std::int64_t keep = 2, const Disk& disk = Disk()) {
  FakeState state;
  state.set(step);
  return save_checkpoint({.path = folder, .keep = keep}, progress_at(step), state.tensors(), disk);
}

// A cpu stream with what it needs around it.
struct Host {
  Ledger ledger;
  std::unique_ptr<Memory> memory = make_memory(Device::cpu, ledger);
  cpu::Stream stream{*memory, 1};
};

// What a checkpoint holds is exactly the state and progress of this step.
inline bool holds(const Checkpoint& checkpoint, std::int64_t step) {
  Host host;
  FakeState state;
  checkpoint.load(state.tensors(), host.stream);
  return checkpoint.progress() == progress_at(step) && state.is(step);
}

// The message of the refusal, or "" when the call returns.
template <class Body>
std::string refusal(Body&& body, ExitCode code = ExitCode::checkpoint) {
  try {
    body();
    return "";
  } catch (const UserError& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
    return error.what();
  }
}

template <class Body>
std::string failure(Body&& body) {
  try {
    body();
    return "";
  } catch (const EnvironmentError& error) {
    return error.what();
  }
}

}  // namespace lockstep::checkpoint_tests
