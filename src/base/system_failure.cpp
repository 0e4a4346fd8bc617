#include "base/system_failure.h"

#include <fmt/format.h>

#include <cerrno>
#include <system_error>

namespace lockstep {

std::string remedy_of(int error) {
  switch (error) {
    case ENOSPC:
    case EDQUOT:
      return "free space there, or name a path on another disk";
    case EACCES:
    case EPERM:
      return "give this user permission, or name another path";
    case EROFS:
      return "name a path on a disk that may be written to";
    case ENOENT:
      return "make the folder that it is in, or name another path";
    case ENOTDIR:
    case EEXIST:
      return "remove the file that is in the way, or name another path";
    case EISDIR:
    case ENOTEMPTY:
      return "remove the folder that is in the way, or name another path";
    case ENAMETOOLONG:
      return "give a shorter name";
    case ELOOP:
      return "name the path without the links that lead in a circle";
    case EFBIG:
      return "raise the limit on the size of files (ulimit -f), or name a path on another disk";
    case EMFILE:
    case ENFILE:
      return "raise the limit on open files (ulimit -n)";
    case ENOMEM:
      return "free memory, or raise the limit on it (ulimit -v)";
    default:
      return "check the disk, or name a path on another";
  }
}

std::string shared_memory_remedy(int error) {
  switch (error) {
    case ENOSPC:
    case ENOMEM:
      return "free memory and space in /dev/shm, or start fewer ranks on this host";
    case EFBIG:
    case EMFILE:
    case ENFILE:
      return error == EFBIG ? "raise the limit on the size of files (ulimit -f unlimited)" : remedy_of(error);
    default:
      return "let this user read and write /dev/shm, and start all ranks of a host as one user in one container";
  }
}

std::string system_failure(const std::filesystem::path& path, const std::string& call, int error) {
  return fmt::format("{}: {} failed: {}; {}", path.string(), call, std::generic_category().message(error),
                     remedy_of(error));
}

}  // namespace lockstep
