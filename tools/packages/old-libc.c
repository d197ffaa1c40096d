/* Linked into released programs, so that they start on hosts whose C library is older than the one that they are linked against. */

/* The standard library does without these where they are missing. Asking for them by version would keep a program from starting,
   so they are missing; hidden, since a library that is loaded must find its own. */
__asm__(".globl gettid\n.hidden gettid\n.set gettid, 0");
__asm__(".globl posix_spawn_file_actions_addchdir_np\n.hidden posix_spawn_file_actions_addchdir_np\n"
        ".set posix_spawn_file_actions_addchdir_np, 0");

/* Newer versions of this one differ in errno alone. */
double old_pow(double base, double exponent);
__asm__(".symver old_pow, pow@GLIBC_" OLDEST);

__attribute__((visibility("hidden"))) double pow(double base, double exponent)
{
    return old_pow(base, exponent);
}
